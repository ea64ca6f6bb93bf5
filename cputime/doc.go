// Package cputime tells how much CPU time this process has used, of the user and of the
// system, with that of processes which solve for it: planners report it, instruments and
// benchmarks measure by it.
package cputime
