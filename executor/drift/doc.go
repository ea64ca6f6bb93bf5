// Package drift says when what a plan is asked for is no longer what it was made for, so
// that another plan is due.
//
// All watches have shares seen, which fade, and shares planned. Where the two lie further
// apart than a limit, an Alarm says in the log what to type, and is raised in a gauge.
//
//	departure.go     shares against shares, the alarm
//	mix.go           requests among the models of a plan
//	gearranges.go    rates of a gear plan
//	gearrates.go     these rates, second by second, for another plan
//	gearforwards.go  samples that members of a cascade forward
package drift
