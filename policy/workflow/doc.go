// Package workflow serves requests whose tasks become known as they run. It predicts the next tasks, places revealed
// and expected tasks on devices, and loads the networks of both before they are needed (DyOrc, SoCC '25).
//
// # Words
//
// Workflow: an application whose next step is chosen by the outcome of the previous one.
//
// Service: a model with its work; a task asks for one. Network: the weights of a service, which a device has to hold.
//
// Place: the index of a device when devices are sorted by node. Position: the index of a task in a device's queue.
//
// Segment: tasks that are revealed together. Expected task: a predicted task that is placed but not revealed yet.
//
// Job: the tasks of a request that are to be placed, with the placed tasks that they read.
//
// Routing: a baseline that places tasks in place of the search.
//
// Session state: what a service keeps of a request from one task to the next (a KV cache). A task continues it.
//
// Copy: a network on one device. Class: the order in which networks and states are evicted.
//
// Resource: a set of devices with the work that no other device can do. A request owes it device time.
//
// Other words are those of docs/concepts.md.
//
// # What happens to a request
//
// Tasks become known segment by segment. With each segment the policy predicts the rest (package predict), writes
// both down as a job (place.go), and searches places for it (search.go). Tasks then wait in the queues of their
// devices. Expected tasks wait there, too, and only cause loads: a device runs the first task in its queue that may
// run, so they never block a revealed one. With the next reveal the expected tasks are forgotten, and the waiting
// tasks are placed anew by what is then known of the queues. Loads that were begun go on.
//
// # Order of reading
//
// State: cluster.go, book.go (requests and tasks), device.go (a device, and the plan of what it will do: its own rule
// played forward over its queue), tables.go (services and devices, from the plan's tables).
//
// Events: policy.go, lost.go (lost devices, batches without a result).
//
// Places: place.go writes a job. rows.go holds, by service and place, when a task would end there. schedule.go computes
// from it the earliest end of each task under equations 1 and 2 of DyOrc, and a bound that no schedule beats; with
// branching it gives what Algorithm 1 of DyOrc gives (exact_test.go and algorithm1_test.go, repaired). search.go goes
// further: tasks of a job wait for each other and share batches. offers.go has what a place offers to a task.
//
// Devices: batches.go brings inputs and runs batches; fill.go lets full batches go first. sequences.go runs language
// models, whose tasks join the iterations of a device one by one. load.go loads and evicts networks, worth.go computes
// what a copy saves, and sessions.go keeps, moves and evicts session states.
//
// Deadlines: door.go admits requests, claim.go gives each application its planned rate where not all can be admitted,
// and late.go says which requests are given up midway.
//
// Policies: options.go names them: DyOrc as repaired, with or without admission, greedy and static placement.
// bench/dyorc/baselines has others, which set Options or a Routing (routing.go). prior.go learns the recorded paths.
package workflow
