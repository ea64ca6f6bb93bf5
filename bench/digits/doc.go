// Command bench-digits serves gear plans of the digits family on this machine
// and holds what came out against the plans and against the simulator (figure
// 13 of CascadeServe): accuracy on held-out samples, tail latency, device time
// against the best single model, a spike, overload, and samples that grow harder.
// `make bench NAME=digits` calls it.
//
// family.go makes the plans; traces.go reads recorded rates; serve.go serves
// for real; overload.go serves more than a plan is for, and other samples;
// simulate.go repeats a run in virtual time; judge.go compares;
// main.go knows flags and tables.
package main
