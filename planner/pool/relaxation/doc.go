// Package relaxation solves the linear program over templates with rates and devices in fractions (the restricted master
// of column generation). Its optimum bounds every plan. Its duals are the price of the devices of each pool and the value
// of a unit of each model's rate.
//
// Vocabulary:
//
//   - Loss of a template: every plan that uses it scores at least so much less than the bound of the relaxation, because
//     whole replicas cost more, at those prices, than the rate they carry is worth.
//   - Wait choice: one combination of wait bounds on time-shared pools, with the templates that keep their SLO under it
//     and their relaxation.
//
// The files, in the order of the step:
//
//	relaxation.go    the relaxation, with a proven bound on every plan, and prices
//	columns.go       column generation, if the templates are too many for one program
//	waitchoice.go    the wait choice, the loss of a template, and the templates of a choice by loss
//	leastlatency.go  the templates of the least latency at a throughput
//	limits.go        what limits the objective; floors and pools that exclude each other
//
// Times of ranges of blocks need not add up: a stage runs its blocks in one piece (package stages). No bound rests on sums
// of blocks. Templates carry the times of their own stages.
package relaxation
