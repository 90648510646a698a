// Package elfdeps finds the files that a dynamically linked program needs
// beside itself: its ELF interpreter and its shared libraries, with theirs.
//
// It reads ELF headers (debug/elf) and never runs the program, so that it
// works for programs of another root and leaves no process behind. What it
// cannot see is what a program opens by itself at run time (dlopen: NSS
// modules, plugins); name such files beside the programs.
package elfdeps
