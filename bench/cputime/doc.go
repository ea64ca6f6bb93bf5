// Package cputime tells how much CPU time an instrument has used, of the user and
// of the system.
package cputime
