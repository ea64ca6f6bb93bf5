// Command bench-ppipe makes the tables that hold this project against PPipe
// (USENIX ATC 2025) from its reference data: recorded plans, measurements and
// the results of the artifact's own simulator. `make bench-ppipe` runs it.
//
// Every table says which cases it covers; -cases and -tables select. The whole
// takes hours on two cores, mostly for the highest loads.
package main
