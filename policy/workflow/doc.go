// Package workflow serves requests whose tasks become known as they run. It predicts the next tasks, places revealed
// and expected tasks on devices, and loads the networks of both before they are needed (DyOrc, SoCC '25).
//
// Vocabulary, beside docs/glossary.md:
//
//   - Service: a model with its usual work; a task asks for one. Network: its weights, which a device has to hold.
//   - Work factor: the time of a task divided by that of a usual task of its service, in fixed point (fixedOne is 1).
//   - Device index: the position of a device when devices are sorted by node. Queue position: an index in a device's queue.
//   - Task ID: the index of a task in the registry. Task, request and batch numbers are the names that events and actions use.
//   - Segment: tasks that are revealed together. Expected task: a predicted task, which has a device but is not revealed yet.
//   - Unplaced: a task that has no device. Job: the tasks of a request that are placed together, with the tasks that they read.
//   - Placement: one possibility to run a task of a job on a device, with its end and its cost to others.
//   - Session state: what a service keeps of a request for the next task (a KV cache). That task continues it.
//   - Copy: a network on one device. Class: networks and states are evicted in the order of their classes.
//   - Drain: a language model takes no new sequences, so that another service gets its device.
//   - Resource: a set of devices with the work that no other device can do. A request needs device time there.
//   - Routing: a rule that places tasks instead of the search.
//
// Times are in ns from the start of the run.
//
// # Parts
//
// All parts act on one cluster (cluster.go): its registry of requests and tasks (tasks.go), its devices (device.go), and
// services and transfer times (tables.go). Policy gives the parts the events (policy.go, losses.go). placer.go gives tasks
// their devices by the plans of devicePlanner (device.go). batches.go brings inputs and runs batches, sequences.go runs
// language models, sessions.go keeps session states, and loader.go decides what devices hold.
//
// # What happens to a request
//
// Tasks become known segment by segment. With each segment the policy predicts the rest (package predict), writes
// both down as a job (placer.go), and searches devices for it (search.go). Tasks then wait in the queues of their
// devices. Expected tasks wait there, too, and only cause loads: a device runs the first task in its queue that may
// run, so they never block a revealed one. With the next reveal the expected tasks are forgotten, and the waiting
// tasks are placed anew by what is then known of the queues. Loads that were begun go on.
//
// # What a device will do
//
// A device's plan (device.go) is its own rule played forward over its queue: the batches and loads that will come.
// From the plans follows the end table (endtable.go): when a task of a service would end on a device, on its own or in a
// batch that is still open.
//
// # Language models
//
// The tasks of a language model are sequences (sequences.go). Each is a batch of its own, which joins the iterations
// of a device where its model runs. Its expected end depends on how many sequences there are. A device drains before
// it runs another service.
//
// # Search
//
// schedule.go computes the earliest end of each task on each device under equations 1 and 2 of DyOrc, in one pass over
// the end table, and a bound that no schedule beats. With branching it gives what Algorithm 1 of DyOrc gives
// (exact_test.go and algorithm1_test.go, repaired). search.go goes further: tasks of a job wait for each other and
// share batches. It takes its candidates from schedule.go, and compares the placements of a task there (placements.go).
//
// # Loads
//
// A device has one copy engine, which loads while batches run (loader.go). Networks and session states are evicted by
// class, and within a class by what a copy saves (copyvalue.go) or by the longest time without use. Session states move
// with their tasks where that is quicker than recomputing them (sessions.go).
//
// # Deadlines
//
// admission.go admits requests at the entry. claim.go gives each application its planned rate where not all requests
// can be admitted. fullbatches.go runs full batches first where the first task can wait. giveup.go says which requests
// are given up midway.
//
// # Baselines
//
// options.go names the policies: DyOrc as repaired, with or without admission, greedy and static placement.
// bench/dyorc/baselines has others. They set Options, or place tasks by a Routing (routing.go). prior.go learns the
// recorded paths before the first request.
package workflow
