// Package readings has what bench/pard compares PARD and feas with: Nexus and Clipper++ as they can be read,
// PARD's ablations (EuroSys '26, §5.3), and parts that are not in force by default. Each registers by name
// for plans of applications.
//
// readings.go lists them, parts.go has the modules' parts of the SLO, entry.go admission at the entry.
//
// # The readings
//
// How a baseline is read matters more than most of its parts. d are times of batches, q mean times in queues, L_sub the
// estimate of the time behind a module (docs/methods/flow.md).
//
//	naive                    first come, first served; nothing is dropped
//	nexus                    first come, first served; keeps the first window of a batch of which all would be in time by the
//	                         whole SLO, and drops those before it
//	clipper++                drops a task if its time in this module, up to the decision, exceeds the module's part of the SLO
//	back, sf, lower, upper   pard with L_sub nothing, Σ d, Σ q + Σ d, Σ q + 2 Σ d
//	split, wcl               the module's part of the SLO by execution, or by the longest times of the last 5 s
//	oc                       as back; the entry admits 60 % for a second after a module's mean queueing was above 25 ms
//	                         (oc_limit_us; the paper has 20 ms on wiki)
//	fcfs, hbf, lbf, instant  pard in another order: first come, always the highest or the lowest budget first, without hysteresis
//	feas-hbf                 feas with the highest budget first where it would set tasks aside, without smaller batches
package readings
