// Command bench-attack attacks `plan` from outside: real processes on loopback, whose
// exit codes, memory and CPU time the kernel counts. Each part takes a way in which a
// cheap client, a bad file or a fault could take the service down, does it many times,
// and makes figures of what came of it. `make bench NAME=attack` and `make bench NAME=soak` call it; a short
// form is part of `make test`.
//
//	requests   mutants of REST requests and gRPC calls, with and without the token
//	documents  mutants of every kind of document, through the verbs that read them
//	magnitudes figures at the ends of their ranges in documents of every kind, through all verbs
//	onnx       mutants of model files, through plan profile
//	greedy     clients that take all the memory they get, beside a well-behaved one
//	shares     clients that send valid requests without end, beside one below its share
//	calls      hostile messages of programs to a plan of workflows
//	faults     workers killed, no descriptors, no room on the disk
//	hang       workers stopped in the midst of load
//	switches   random plans put in force under load, with random times to drain; workers killed meanwhile
//	stores     files of accepted requests damaged, and their disk full
//	agents     peers on NATS, and servers of language models, that do harm
//	soak       70 % of the planned rate for a long time, sampled and drawn
//
//	main.go       flags and parts
//	plans.go      the plans that are served
//	watch.go      the server under attack, and how it is watched
//	clients.go    clients that behave, and how their requests ended
//	mutate.go     hostile variants of good inputs, from a seed
//	hostile.go    bodies that are known to be hard to decode
//	requests.go   the part requests: REST, byte by byte, past every client library
//	calls.go      gRPC likewise
//	programs.go   the program is given mutants as files
//	documents.go  the parts documents, magnitudes and onnx
//	greedy.go     the part greedy, and the process of hostile clients
//	shares.go, workflows.go (calls), faults.go, hang.go, switches.go, stores.go
//	agents.go     the part agents, with the server of harmful.go
//	soak.go       the part soak
//
// The engine is replay everywhere: what is attacked is all that stands around engines.
package main
