// Package pool plans pooled pipelines: it decides which block ranges of which models run on how many
// devices, or shares of devices, of which kind, and at which batch size. It maximises the least rate
// per weight of all models, or minimises the price of the devices that carry given rates, and proves
// a bound on every plan. The method follows PPipe (USENIX ATC 2025, appendix A) in what a plan is and
// what it must keep. It replaces PPipe's big-M program by templates (docs/methods/pool.md).
//
// The package holds the method: the steps in order. Each step is a package below it, and imports only
// those that come before it:
//
//	problem     what a search is given and what it returns, as numbers
//	templates   the pooled pipelines that keep the SLO, without replica counts
//	relaxation  rates and devices in fractions: a bound on every plan, prices, and losses
//	placement   plans of whole replicas, and their places on devices
//	programs    the integer programs over a set of templates
//	incumbent   the goals, the best plan so far, and the bounds
//	losses      the proof by sums of losses
//	bundles     many models: one set of pipelines of each
//	search      the phases from templates to a plan with its bound, and the baselines
//	documents   documents to a problem, and an outcome to the parts of a plan
//	headroom    what a plan keeps back, tuned by simulation
//	running     plans of deployments that run and were not planned here
//	verify      checks plans by code of its own
//
// Vocabulary (each package explains its own words):
//
//   - Template: one pooled pipeline without replica counts. It is a batch size and, per stage, a block
//     range, a device kind and a share 1/v. Only templates that keep the SLO exist, so latency never
//     enters a program.
//   - Pipeline, in a plan: a template with whole replicas of each stage and the rate that it carries.
//   - Slot: one stage position of one model on one device kind. Under the slot rule only replicas of
//     the same slot share a device.
//   - Floor: the rate (MinRPS) that a model must have at least.
//
// In the code of all these packages d is the index of a model, k of a pool, ti of a template, si of a
// stage of it, and ci of a pipeline of a plan.
//
// The files:
//
//	method.go    Method: plans the problem of documents for a driver
//	workload.go  a workload that asks less, or for what a served plan got
//
// Every phase stops on deterministic work, so the same problem gives the same plan. Only a cancelled
// context or a time limit makes it depend on the clock.
package pool
