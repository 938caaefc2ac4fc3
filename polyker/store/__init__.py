"""The disk cache: entries named by the digest of all that they depend on, in a folder that is this user's alone."""
