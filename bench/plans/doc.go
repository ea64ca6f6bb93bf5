// Command plans judges a change of the planner on recorded and drawn problems of all kinds: it records the plans
// and their CPU time, and compares what they state with the record of another commit.
//
//	main.go    the solves, their record and the table
//	cases.go   the problems, in sets
//
//	make bench NAME=plans ARGS="-record before.json"
//	make bench NAME=plans ARGS="-against before.json"
package main
