/* What a cubin says: an ELF file with a section of code, of notes (".nv.info.NAME") and of shared memory for each kernel.
 *
 * The architecture lies in the header's flags: in the lowest byte up to ABI version 7 (CUDA 12; 0x800: for this architecture
 * alone), in the second one in version 8 (CUDA 13), where a note in ".nv.compat" tells of such "a" code.
 */
#include "stub_cuda.h"

#include <elf.h>
#include <string.h>

enum { SINGLE_VALUE = 4, BYTE_VALUE = 2, HALF_VALUE = 3 }; /* formats of notes; the rest has no value */
enum { MAX_THREADS = 0x05, FRAME_SIZE = 0x11, PARAMETER = 0x17, REGISTERS = 0x2F, WIDE_PARAMETER = 0x45, EXACT = 0x09 };
enum { RESERVED_SHARED = 1024 }; /* bytes a block that the system takes from 9.0 on: sections count them, the limits do not */

typedef struct {
  const unsigned char *bytes;
  const Elf64_Shdr *sections;
  const char *names;
  unsigned count;
} Image;

static const char *name_of(const Image *image, unsigned n) { return image->names + image->sections[n].sh_name; }

/* Return the section of a kernel whose name begins so, 0 for none. */
static unsigned section_of(const Image *image, const char *prefix, const char *kernel) {
  size_t length = strlen(prefix);
  for (unsigned n = 1; n < image->count; n++)
    if (!strncmp(name_of(image, n), prefix, length) && !strcmp(name_of(image, n) + length, kernel)) return n;
  return 0;
}

static uint16_t half(const unsigned char *at) {
  uint16_t value;
  memcpy(&value, at, 2);
  return value;
}

static uint32_t word(const unsigned char *at) {
  uint32_t value;
  memcpy(&value, at, 4);
  return value;
}

/* Call a function for each note of a section: with its number and what it says. */
static void notes(const Image *image, unsigned section, void (*each)(void *, int, const unsigned char *, unsigned), void *data) {
  if (!section) return;
  const unsigned char *at = image->bytes + image->sections[section].sh_offset, *end = at + image->sections[section].sh_size;
  while (at + 4 <= end) {
    unsigned size = at[0] == SINGLE_VALUE ? half(at + 2) : 0;
    if (size > (size_t)(end - at - 4)) return;
    each(data, at[1], at[0] == SINGLE_VALUE ? at + 4 : at + 2, at[0] == SINGLE_VALUE ? size : at[0] == BYTE_VALUE ? 1 : 2);
    at += 4 + size;
  }
}

typedef struct {
  unsigned count, threads, sizes[MAX_PARAMETERS], offsets[MAX_PARAMETERS];
  uint32_t symbol;
  unsigned registers, frame;
  int exact;
} Found;

static void kernel_note(void *data, int number, const unsigned char *value, unsigned size) {
  Found *found = data;
  if (number == MAX_THREADS && size >= 12)
    found->threads = word(value) * word(value + 4) * word(value + 8);
  else if ((number == PARAMETER || number == WIDE_PARAMETER) && size >= 12) {
    unsigned n = half(value + 4);
    if (n >= MAX_PARAMETERS) return;
    found->offsets[n] = half(value + 6);
    found->sizes[n] = number == PARAMETER ? word(value + 8) >> 18 : word(value + 8);
    if (n >= found->count) found->count = n + 1;
  }
}

static void module_note(void *data, int number, const unsigned char *value, unsigned size) {
  Found *found = data;
  if (size < 8 || word(value) != found->symbol) return;
  if (number == REGISTERS) found->registers = word(value + 4);
  if (number == FRAME_SIZE) found->frame = word(value + 4);
}

static void compatibility_note(void *data, int number, const unsigned char *value, unsigned size) {
  if (number == EXACT && size == 1) ((Found *)data)->exact = *value;
}

static uint32_t symbol_of(const Image *image, const char *kernel) {
  for (unsigned n = 1; n < image->count; n++) {
    const Elf64_Shdr *section = &image->sections[n];
    if (section->sh_type != SHT_SYMTAB || section->sh_link >= image->count) continue;
    const Elf64_Sym *symbols = (const void *)(image->bytes + section->sh_offset);
    const char *names = (const char *)image->bytes + image->sections[section->sh_link].sh_offset;
    for (uint32_t i = 0; i < section->sh_size / sizeof *symbols; i++)
      if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && !strcmp(names + symbols[i].st_name, kernel)) return i;
  }
  return 0;
}

static void read_kernel(const Image *image, Module *module, const char *name, int arch) {
  static Found found; /* too large for a small stack; the mutex is held */
  memset(&found, 0, sizeof found);
  found.symbol = symbol_of(image, name);
  notes(image, section_of(image, ".nv.info.", name), kernel_note, &found);
  notes(image, section_of(image, ".nv.info", ""), module_note, &found);
  Function *function = pk_add_function(module, name, found.count);
  for (unsigned n = 0; n < found.count; n++) {
    function->sizes[n] = found.sizes[n];
    function->offsets[n] = found.offsets[n];
    unsigned end = found.offsets[n] + found.sizes[n];
    if (end > function->total) function->total = end;
  }
  unsigned shared = section_of(image, ".nv.shared.", name);
  function->fixed = shared ? (unsigned)image->sections[shared].sh_size : 0;
  if (arch >= 90 && function->fixed >= RESERVED_SHARED) function->fixed -= RESERVED_SHARED;
  function->bounds = found.threads;
  function->registers = found.registers;
  function->local = found.frame;
  function->arch = arch;
}

CUresult pk_parse(const void *bytes, Module *module) {
  /* Character by character: a shorter image may end anywhere. */
  for (int n = 0; n < SELFMAG; n++) NEEDS(((const char *)bytes)[n] == ELFMAG[n], INVALID_IMAGE);
  const Elf64_Ehdr *header = bytes;
  NEEDS(header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_machine == 190 /* CUDA */, INVALID_IMAGE);
  NEEDS(header->e_shoff && header->e_shentsize == sizeof(Elf64_Shdr) && header->e_shstrndx < header->e_shnum, INVALID_IMAGE);
  Image image = {.bytes = bytes, .count = header->e_shnum};
  image.sections = (const void *)(image.bytes + header->e_shoff);
  image.names = (const char *)image.bytes + image.sections[header->e_shstrndx].sh_offset;

  static Found found;
  memset(&found, 0, sizeof found);
  int latest = header->e_ident[EI_ABIVERSION] >= 8;
  int arch = (int)(latest ? header->e_flags >> 8 : header->e_flags) & 0xFF;
  if (latest)
    notes(&image, section_of(&image, ".nv.compat", ""), compatibility_note, &found);
  else
    found.exact = (header->e_flags & 0x800) != 0;
  int device = pk_devices[module->object.ctx->device].arch;
  NEEDS(found.exact ? arch == device : arch / 10 == device / 10 && arch <= device, NO_BINARY_FOR_GPU);
  for (unsigned n = 1; n < image.count; n++)
    if (!strncmp(name_of(&image, n), ".text.", 6)) read_kernel(&image, module, name_of(&image, n) + 6, arch);
  return OK;
}
