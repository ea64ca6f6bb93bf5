// Package cputime tells how much CPU time this process has used, of the user and of the
// system: planners report it, instruments and benchmarks measure by it.
package cputime
