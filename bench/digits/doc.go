// Command bench-digits serves gear plans of the digits family on this machine
// and holds what came out against the plans and against the simulator (figure
// 13 of CascadeServe): accuracy on held-out samples, tail latency, device time
// against the best single model, a spike, overload, and samples that grow harder.
// The family is trained and measured where it is missing in the folder of results.
//
//	main.go      parts and flags, plans
//	family.go    the family, its plans and its recorded traces of rates
//	serve.go     a run in real time, and again in virtual time
//	runs.go      runs against plan and simulator, and against a single model
//	overload.go  more than a plan is for, and harder samples
package main
