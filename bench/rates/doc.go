// Command rates compares what plans of pools and applications state with what simulation shows. It takes
// problems of bench/drawn, from one CPU to 100 GPUs. For each it asks whether the default plan holds its
// rates in runs with fresh seeds, whether explicit flags hold more, and whether the stated
// bound is above all of it.
//
//	tables.go     the table of drawn problems and its figures
//	gaps.go       the gap of small fleets to their bounds
//	overload.go   goodput of applications beyond their planned rates
//	main.go       flags
package main
