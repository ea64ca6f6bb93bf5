// Command odd measures whether every search ends. It draws problems of all kinds (testkit/mutant) that are tiny, huge, equal or
// one too many: SLOs of microseconds or hours, a millionth or a million times the rates, one device or ten
// thousand, models that are all the same, grids that list millions. plan solve has to end within 20 s of CPU and
// 1 GiB, with a documented exit code, and within a second of CPU after Ctrl-C at a random moment.
//
//	main.go   the problems and the figures
//	run.go    plan solve as a process, with what it used
//
//	make bench NAME=odd
package main
