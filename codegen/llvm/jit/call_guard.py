"""The part of the emitted entry that looks whether its tables hold here and now, in LLVM IR.

An operator's calls depend on the options in force and on the environment. Both are read from the objects that hold them: items
of dicts, and a context variable. Nothing that is called here gives the interpreter's lock away.
"""

GUARD = """\
; Whether items of dicts are the objects that they have to be.
define internal i1 @are_usual(ptr %api, ptr %watches, i64 %count) {
entry:
  %look_up = call ptr @pointer(ptr %api, i64 $ApiWord_LOOK_UP)
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %right ]
  %end = icmp eq i64 %k, %count
  br i1 %end, label %yes, label %look
look:
  %at = mul i64 %k, $watch_words
  %watch = getelementptr i64, ptr %watches, i64 %at
  %dict = call ptr @pointer(ptr %watch, i64 $WatchWord_DICT)
  %key = call ptr @pointer(ptr %watch, i64 $WatchWord_KEY)
  %value = call ptr @pointer(ptr %watch, i64 $WatchWord_VALUE)
  %found = call ptr %look_up(ptr %dict, ptr %key)
  %same = icmp eq ptr %found, %value
  br i1 %same, label %right, label %no
right:
  %next = add i64 %k, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether a table holds: its guards are as they were, and what was chosen is in force.
define internal i1 @holds(ptr %table, ptr %api, ptr %variable) {
entry:
  %place = alloca ptr
  store ptr null, ptr %place
  %count = call i64 @word(ptr %table, i64 $TableWord_GUARD_COUNT)
  %guards = call ptr @pointer(ptr %table, i64 $TableWord_GUARDS)
  %usual = call i1 @are_usual(ptr %api, ptr %guards, i64 %count)
  br i1 %usual, label %context, label %no
context:
  %get = call ptr @pointer(ptr %api, i64 $ApiWord_CONTEXT)
  %failed = call i32 %get(ptr %variable, ptr null, ptr %place)
  %well = icmp eq i32 %failed, 0
  br i1 %well, label %got, label %error
error:
  %clear = call ptr @pointer(ptr %api, i64 $ApiWord_CLEAR)
  call void %clear()
  br label %no
got:
  %value = load ptr, ptr %place
  %nothing = icmp eq ptr %value, null
  br i1 %nothing, label %no, label %compare
compare:
  %decref = call ptr @pointer(ptr %api, i64 $ApiWord_DECREF)
  call void %decref(ptr %value) ; the context keeps it
  %chosen = call ptr @pointer(ptr %table, i64 $TableWord_CHOSEN)
  %none = call ptr @pointer(ptr %table, i64 $TableWord_NONE)
  %unset = icmp eq ptr %value, %none
  br i1 %unset, label %default, label %judge
default:
  %look_up = call ptr @pointer(ptr %api, i64 $ApiWord_LOOK_UP)
  %defaults = call ptr @pointer(ptr %table, i64 $TableWord_DEFAULTS)
  %key = call ptr @pointer(ptr %table, i64 $TableWord_DEFAULT_KEY)
  %standard = call ptr %look_up(ptr %defaults, ptr %key)
  br label %judge
judge:
  %in.force = phi ptr [ %value, %compare ], [ %standard, %default ]
  %same = icmp eq ptr %in.force, %chosen
  ret i1 %same
no:
  ret i1 false
}
"""
