// Command dyorc measures how dynamic workflows are served: DyOrc, as published
// and as repaired, against greedy, static and reactive placement, in
// the simulator (make bench NAME=dyorc).
//
// Applications and fleets are those of testkit/workflows. Arrivals are two hours of
// the Azure Functions trace of 2019 (minutes 600 to 719 of its second day), whose
// ten functions go to the applications in turn. Each application's requests per
// minute are scaled to a mean and spread over the minute at random.
//
// A run is half an hour, of which the first five minutes are not counted. Fleets
// start empty, but for a static one, which holds what DyOrc as published kept on
// each device for longest on the same arrivals. Figures are means over five
// seeds, intervals are Student's t over them. The constants of the policy
// (freeBacklog, fullPriceBacklog, maxExpectBacklog, the price of a load) were
// chosen on seeds 1 to 3.
//
// In the part prior some policies know what a plan says before the first request: the
// ways of requests by their chances, rates, and what devices hold. It is of
// seeds on which nothing was chosen. But for it and overload, policies know nothing at first.
//
// In the part overload plans are asked for more than was planned. Their arrivals are Poisson's.
//
// In the part llm the language models run iteration by iteration, with
// answers whose lengths are drawn. It has two seeds.
//
//	main.go       the parts
//	scenes.go     what is compared
//	arrivals.go   the trace and arrivals from it
//	run.go        a scene under a policy, and grids of them
//	watch.go      how long networks are on devices
//	latencies.go  mean and 99th percentile of latency
//	costs.go      what cold starts cost
//	deadlines.go  scales of deadlines, and requests in time
//	overload.go   goodput beyond the planned rate
//	accuracy.go   predictions
//
// Package baselines has the policies that the product does not.
package main
