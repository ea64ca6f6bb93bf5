// Command qlm measures the planning of language model queues against QLM ("One
// Queue Is All You Need"), against what is proven and against real servers.
//
//	main.go      flags, parts and tables
//	figures.go   figures.json: every claim with what was asked and what was measured
//	keep.go      results that a second start does not measure again
//	instance.go  the model of an instance against runs of vLLM (package profiler/llmrun)
//	exchange.go   all-reduces of a ring against measured ones
//	speed.go     what the simulator of instances takes
//	long.go      what long queues and many instances take
//	exact.go     programs solved to the end, with the search beside them
//	orders.go    orders by size and load: list, greedy and search against the bound
//	chance.go    plans under random times: chance constraints and the smooth objective
//	replan.go    400,000 queued requests planned anew
//	waits.go     waiting and completion times of a queue, predicted before it is served
//	drift.go     waits predicted while a queue is served
//	fleet.go     policies on four A100s (package fleet), and the ceiling of throughput
//	priced.go    admission against other rules where all instances have one model
//	timelines.go  what each instance does over a run, as a picture
//	operations.go  what swaps, evictions and loads cost
//	sweep.go     one quantity varied: table, picture, what the paper claims
//	sweeps.go    the quantities: those of the paper's figures, and the ablation
//	claims.go    the paper's claims row by row
//	sizing.go    GPUs that policies need (package sizing)
//	beside.go    batches beside interactive requests (package beside)
//
// Package rules has the policies that virtual queues are compared with.
//
// Times are CPU times of this process, so other work on the machine does not count,
// though it makes caches colder. Searches are limited by positions looked at, so
// orders are the same on every machine.
package main
