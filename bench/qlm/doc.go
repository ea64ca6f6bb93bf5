// Command qlm measures the planning of language model queues against QLM ("One Queue Is All You Need"), against what is proven and
// against real servers. Package instrument has its frame.
//
//	main.go        flags and parts
//	instance.go    the model of an instance against runs of vLLM (package profiler/llmrun)
//	long.go        what long queues and many instances take
//	waits.go       waiting and completion times of a queue, predicted before it is served
//	drift.go       waits predicted while a queue is served
//	exact.go       programs solved to the end, with the search beside them
//	orders.go      orders of many groups: list, greedy and search against the bound (package latebound)
//	chance.go      plans under random times: chance constraints and the smooth objective
//	replan.go      400,000 queued requests planned anew
//	operations.go  what swaps, evictions and loads cost
//	sweep.go       policies (package fleet) at some points: the table, and what the paper claims
//	fleet.go       policies on four A100s, and admission where all instances have one model
//	sessions.go    conversations whose turns stay with their prefixes
//	sweeps.go      the quantities of the paper's figures, and the ablations
//	claims.go      the paper's claims row by row
//	beside.go      batches beside interactive requests (package sizing)
//	sizing.go      GPUs that policies need (package sizing)
//
// Package rules has the policies that virtual queues are compared with, package instance the queues and runs that the data holds.
//
// Times are CPU times of this process, so other work on the machine does not count, though it makes caches colder. Searches are
// limited by positions looked at, so orders are the same on every machine.
package main
