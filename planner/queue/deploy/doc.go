// Package deploy chooses the instances of language models for a workload: how many servers of which
// devices, which models and classes each pool of them serves, and how many sequences run at once on each.
//
// Vocabulary:
//
//   - Item: a class of requests for one model, with its rate.
//   - Kind: a sort of server, which is a number of devices of a pool of the cluster (tensor parallelism).
//     An instance is one server of a kind.
//   - Cap: a limit on the sequences that run at once on an instance, of a model or of a class.
//   - Pool: instances that serve the same items. Layout: pools that share nothing.
//   - Structure: which items share a pool. A search tries several.
//   - Run: one simulation of arrivals. Score: the outcomes of some runs. A run is broken off once so many
//     requests are late that the layout cannot hold.
//   - Fleet: the instances of a plan on their devices. One goes on in another fleet if it need not start
//     anew; the devices of the others move.
//   - Judge group: classes that are judged together, by one figure (whole answer, TTFT or TPOT).
//   - Penalty: the late requests of a pool, weighed by how many are allowed. A search makes it smaller.
//   - Backlog: the requests in the system. If it grows during a run, the layout does not hold for long.
//   - Work: the time of an instance that a request takes. The work bound is the best value of a goal at
//     which the work of the requests in time still fits.
//   - Surplus: a part of the requests that may be late, which the search keeps back so that a test with
//     other random numbers passes.
//   - Mega prompt: a prompt many times longer than the median, with an estimator of its own.
//
// The search simulates pools alone, and keeps the score of everything that was simulated. Random numbers
// belong to a model and class, so two layouts meet the same requests. A layout is judged as a whole, just
// as plan simulate runs its plan, and the plan states what these runs show.
//
// The order in which to read the files:
//
//	problem.go      Problem: models, classes, items and kinds as numbers
//	resolve.go      from the documents to the problem
//	lengths.go      tokens of prompts and answers: from distributions, files, samples
//	idlefigures.go  the figures of requests on an idle instance; SLOs that cannot be kept
//	calibrate.go    estimators, fitted to queues that the simulator drains
//	layout.go       Layout: pools of instances, and limits of their number
//	section.go      the plan of a layout, with the devices of every instance
//	operations.go   how evicted requests go on, and how models are loaded
//	trial.go        simulates pools alone, and layouts as a whole; the first requests of a plan, to form groups of them
//	score.go        the outcomes of runs, and when a run is broken off
//	search.go       the structures that are tried
//	caps.go         caps of models and of classes
//	cheapest.go     the cheapest layout that keeps the SLOs
//	highest.go      the most requests in time, or the highest rates, on all devices
//	workbound.go    bounds by work: what no order and no assignment exceeds
//	servers.go      instances that run: the problem for them, and their judging as they stand
//	fleet.go        which of them go on in another plan, and the plans that are near
package deploy
