// Command promise makes the tables of what plans of each kind promise, what simulation says with
// the times recorded while serving, and what is served, at loads from .1 to 2 of the stated rate.
//
// A deployment is prepared with the commands that a user would type: models, profile, plan. At each
// load the plan is served by real processes and driven by plan load. The same arrivals are
// simulated twice: with the times of the profile (promised), and with those recorded while
// serving (replayed; queues of language models record none). A part is a kind of plan.
//
//	main.go         parts and flags; one load, served and simulated
//	deployments.go  what is deployed, of each kind, and how
//	lines.go        requests of text in images
//	tables.go       medians of the rounds, as rows and figures
package main
