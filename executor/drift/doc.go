// Package drift watches whether a plan is asked for what it was made for. If not, another plan is due: an Alarm logs
// what to type, and sets a gauge.
//
// Vocabulary:
//
//   - Drift: the distance between shares that were observed and shares that were planned, as the total variation
//     between the two distributions.
//   - Part: what the shares are of: models, ranges of rates, or members of a cascade.
//   - Window: an interval of observation, of about a second. Older windows fade.
//   - Member: a model of a cascade.
//
// Order of reading: sharedrift.go (drift of any shares, and the alarm), mix.go (requests among the models),
// gearranges.go (rates of a gear plan), gearrates.go (these rates, second by second, for another plan),
// gearforwards.go (samples that members of a cascade forward).
package drift
