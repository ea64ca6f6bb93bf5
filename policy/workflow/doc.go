// Package workflow serves requests whose tasks become known as they run: it
// predicts what comes next, places revealed and expected tasks on devices, and
// has the networks of both loaded before they are needed (DyOrc, SoCC '25).
//
// # Parts
//
// All parts act on one cluster (cluster.go): requests and tasks (book.go), devices
// and their plans (device.go). batches have a placed task's inputs brought and run
// it (batches.go), loads decide what devices hold (load.go), placement gives tasks
// their devices (place.go).
// Policy tells them what has happened (policy.go, lost.go).
//
// # What happens to a request
//
// Tasks become known segment by segment. With each segment the policy predicts
// the rest (package predict), writes both down as a job (place.go), and searches
// places for it (search.go). Tasks then wait in the queues of their devices.
// Expected tasks wait there, too, and do nothing but cause loads: a device runs
// the first task in its queue that may run, so they never block a revealed one.
// With the next reveal what was expected is forgotten and what waits is placed
// anew, on what is then known of the queues; loads that were begun go on.
//
// # What a device will do
//
// A device's plan (device.go) is its own rule played forward over its queue:
// batches to come, loads to come. From it follow the rows (rows.go): when a task
// of a service would end there, on its own or in a batch that is still open.
//
// # Language models
//
// The tasks of a language model are sequences (sequences.go). Each is a batch of its
// own, which joins the iterations of a device where its model runs. Their ends are
// expected from how many there are. A device drains before it runs another service.
//
// # Search
//
// schedule.go computes the earliest end of each task at each place under equations 1 and 2
// of DyOrc, in a pass over the rows, and a bound that no schedule beats. With branching it
// gives what Algorithm 1 of DyOrc gives (exact_test.go and algorithm1_test.go, repaired).
// search.go goes further: tasks of a job wait for each other and share batches there. It
// takes its candidates from the passes of schedule.go, and asks each what it offers
// (offers.go).
//
// # Loads
//
// A device has one copy engine, which loads beside the batches (load.go). What
// goes to make room follows classes of protection, then what a copy saves
// (worth.go), or the longest time without use. States of sessions, which services
// keep of a request from one task to the next, make room by the same rule, and move
// with their tasks where that is quicker than computing them anew (sessions.go).
//
// # Deadlines
//
// door.go admits requests at the entry, and claim.go has applications do so by their planned
// rates where there is no room for all. fill.go has full batches go first where the first task
// can wait. late.go says which requests are given up midway.
//
// # Baselines
//
// options.go names the policies: DyOrc as repaired, with admission or without, greedy and
// static placement. bench/dyorc/baselines has others. They set Options, or place tasks by a
// rule of their own (routing.go).
//
// tables.go has what is read from the tables.
package workflow
