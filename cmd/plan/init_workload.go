package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// defaultSLO is the SLO of models in a starter workload, unless the models are slow.
const defaultSLO = 200 * time.Millisecond

const workloadHead = "# What is asked of the devices. 'plan schema workload' has every field.\nformat: inferplan.workload/v1\n"

// workloadStarter returns a commented workload for what a profile measured on the pools' devices: a cascade if it has
// records of models, else the models, else its language models. SLOs and rates are such that one device of a kind can
// keep them, by the times that planning counts.
func workloadStarter(profile *formats.Profile, pools []formats.Pool) string {
	for i := range profile.Records {
		if family := familyOf(profile, &profile.Records[i]); len(family) > 1 {
			if total := servedTime(family, document.Map(pools, wholeDevices)); total > 0 {
				return cascadeStarter(family, total, frontEndTime(profile, family))
			}
		}
	}

	// A model in length buckets is asked for by one name, and takes as long as all of them.
	var measured, absent []string
	total := time.Duration(0)
	for i := range profile.Models {
		m := &profile.Models[i]
		elapsed := servedTime([]*formats.ProfileModel{m}, pools)
		if elapsed > 0 && !slices.Contains(measured, m.RequestedName()) {
			measured = append(measured, m.RequestedName())
		}
		total += elapsed
	}
	for _, name := range profile.RequestedModels() {
		if !slices.Contains(measured, name) {
			absent = append(absent, name)
		}
	}
	if len(measured) == 0 && len(profile.LLMs) > 0 {
		return textStarter(profile.LLMs)
	}
	if len(measured) == 0 {
		measured, absent = absent, nil // a plan says what to measure
	}
	return modelsStarter(measured, absent, max(defaultSLO, roundUp(5*total)))
}

// familyOf returns the models of records in the profile, or nothing if it lacks one.
func familyOf(profile *formats.Profile, records *formats.Records) (family []*formats.ProfileModel) {
	for i := range records.Models {
		m := profile.FindModel(records.Models[i].Model)
		if m == nil {
			return nil
		}
		family = append(family, m)
	}
	return family
}

// wholeDevices returns a pool whose devices are not divided, as those of a cascade.
func wholeDevices(pool *formats.Pool) formats.Pool {
	return formats.Pool{Device: pool.Device, Count: pool.Count, MaxShares: 1}
}

// servedTime returns how long a request takes that asks all the models one after the other, each at its smallest batch
// on the slowest share of the pools' devices that it was measured on. If one was measured on none, it returns 0.
func servedTime(models []*formats.ProfileModel, pools []formats.Pool) time.Duration {
	total := formats.MeanOfFamily(models, func(m *formats.ProfileModel) document.Micros { return m.RequestUS })
	for _, m := range models {
		slowest := time.Duration(0)
		for i := range m.Measurements {
			x := &m.Measurements[i]
			isHere := slices.ContainsFunc(pools, func(p formats.Pool) bool { return p.Device == x.Device && x.Share <= max(1, p.MaxShares) })
			hasSmaller := slices.ContainsFunc(m.Measurements, func(y formats.Measurement) bool {
				return y.Device == x.Device && y.Share == x.Share && y.Batch < x.Batch
			})
			if isHere && !hasSmaller {
				slowest = max(slowest, plannedTime(x))
			}
		}
		if slowest == 0 {
			return 0
		}
		total += slowest + m.DispatchUS.D()
	}
	return total
}

// plannedTime returns the longest time that planning counts for a batch: the median of the whole model or, if it was not
// measured, of its blocks together; on a busy machine, the mean, which may be many times the median; and the mean after
// a pause.
func plannedTime(x *formats.Measurement) time.Duration {
	if whole := x.WholeModel; whole != nil {
		return max(whole.WallUS, whole.MeanUS, whole.IdleUS).D()
	}
	blocks := time.Duration(0)
	for i := range x.Blocks {
		blocks += x.Blocks[i].WallUS.D()
	}
	return blocks
}

// frontEndTime returns for how long a request to a family occupies the front end that the profile was measured on.
func frontEndTime(profile *formats.Profile, family []*formats.ProfileModel) time.Duration {
	if profile.FrontEnd == nil {
		return 0
	}
	return profile.FrontEnd.OccupiedTime(formats.MeanOfFamily(family, func(m *formats.ProfileModel) document.Micros { return m.RequestCPUUS }))
}

// roundUp returns a time rounded up to two digits.
func roundUp(d time.Duration) time.Duration {
	unit := time.Microsecond
	for d > 99*unit {
		unit *= 10
	}
	return (d + unit - 1) / unit * unit
}

// modelsStarter returns a commented workload of models with an SLO. absent are models that no device of the cluster
// measured.
func modelsStarter(models, absent []string, slo time.Duration) string {
	var b strings.Builder
	b.WriteString(workloadHead + leftOut(absent, "no device of cluster.yaml was measured with them") + "models:\n")
	for i, m := range models {
		if i == 0 {
			fmt.Fprintf(&b, "- model: %q  # a model of the profile\n  slo: %-16s # or a multiple of the model's own latency: 5x\n  weight: 1             # its share of the rates\n", m, document.Duration(slo))
			continue
		}
		fmt.Fprintf(&b, "- {model: %q, slo: %s, weight: 1}\n", m, document.Duration(slo))
	}
	b.WriteString("arrivals: {process: poisson}\n")
	return b.String()
}

// leftOut returns a comment about models that a starter workload leaves out, or nothing if there are none.
func leftOut(models []string, reason string) string {
	if len(models) == 0 {
		return ""
	}
	return "# Left out, because " + reason + ": " + strings.Join(models, ", ") + "\n"
}

// cascadeStarter returns a commented workload of a cascade. total is the time of a request that every model sees, frontEnd
// the part of it in the front end.
func cascadeStarter(family []*formats.ProfileModel, total, frontEnd time.Duration) string {
	return fmt.Sprintf(workloadHead+`cascade:
  family: [%s]  # the models of the records, in order of size
  slo:
    latency: %s     # 10 times the mean time if every model sees the request; among the cascades that keep it, the most accurate is found
    percentile: p95
    # accuracy: 0.9   # in its place or beside it: the least latency, or the fewest devices
  qps:
    max: %.3g          # requests a second at most: half of what one device, or the front end if it is slower, carries when every model sees every request
    ranges: 4         # gears
    distribution: zipf  # how often each range of rates occurs; or measured: FILE (second,count)
`, strings.Join(document.Map(family, func(m **formats.ProfileModel) string { return fmt.Sprintf("%q", (*m).Model) }), ", "),
		document.Duration(roundUp(10*total)), 0.5/max(total, frontEnd).Seconds())
}

// Lengths of the requests of a starter workload of language models, unless their memory is too small.
const (
	starterPrompt = 500
	starterOutput = 200
)

// Of a starter workload of language models, a server that runs so many sequences at once answers twice the rate.
const starterSequences = 8

// starterInstance returns the first instance of a language model whose KV capacity is known, without which no plan is
// made. It is nil if there is none.
func starterInstance(m *formats.LLMProfile) *formats.LLMInstance {
	return document.First(m.Instances, func(in *formats.LLMInstance) bool { return in.KVTokens > 0 })
}

// textStarter returns a commented workload of the language models that have a starter instance. The rate of all together
// is half of what the slowest of them answers that runs starterSequences sequences at once, or as many as it can.
func textStarter(llms []formats.LLMProfile) string {
	// Choose the models, and lengths that fit into the memory of all.
	var names, incomplete []string
	var instances []*formats.LLMInstance
	prompt, output := int64(starterPrompt), int64(starterOutput)
	for i := range llms {
		in := starterInstance(&llms[i])
		if in == nil {
			incomplete = append(incomplete, llms[i].Model)
			continue
		}
		names, instances = append(names, fmt.Sprintf("%q", llms[i].Model)), append(instances, in)
		prompt, output = min(prompt, max(1, in.KVTokens/8)), min(output, max(1, in.KVTokens/16))
	}
	// Find how long a request takes alone on the slowest server, and the least rate of a server that runs several at once.
	slowest, leastRPS := time.Millisecond, math.Inf(1)
	for _, in := range instances {
		budget := cmp.Or(int32(in.TokenBudget), starterPrompt)
		sequences := min(starterSequences, in.KVTokens/(prompt+output))
		if in.Sequences > 0 {
			sequences = min(sequences, int64(in.Sequences))
		}
		sequences = max(1, sequences)
		residence := in.Iteration.ResidenceTime(int32(sequences), float64(prompt), float64(output), budget)
		slowest = max(slowest, in.Iteration.ResidenceTime(1, float64(prompt), float64(output), budget))
		leastRPS = min(leastRPS, float64(sequences)/max(residence, time.Millisecond).Seconds())
	}
	if len(instances) == 0 {
		leastRPS = 0
	}
	return fmt.Sprintf(workloadHead+`llm:
  models: [%s]  # language models of the profile
%s  classes:
  - class: chat
    slo: %-14s # of the figure in 'of'
    of: e2e            # arrival to last token; or ttft, tpot
    rps: %-14.3g # of all models together
    prompt: {distribution: fixed, mean: %d}  # tokens; or normal, lognormal, empirical, or lengths_file
    output: {distribution: fixed, mean: %d}
# plan import workload makes this from a trace of requests.
arrivals: {process: poisson}
`, strings.Join(names, ", "), leftOut(incomplete, "the profile lacks their KV capacity (kv_tokens)"), document.Duration(roundUp(5*slowest)), 0.5*leastRPS, prompt, output)
}
