// Package cputime measures the CPU time that this process has used, of the user and of the
// system, with that of processes which solve for it. Planners report it, and instruments and
// benchmarks measure by it.
package cputime
