package main

import (
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

// workloadStarter returns a commented workload for a profile: a cascade if it has records of models that were measured,
// else its models, else its language models. SLOs and rates are such that one device of a kind can keep them.
func workloadStarter(profile *formats.Profile) string {
	for i := range profile.Records {
		if family, total := measuredFamily(profile, &profile.Records[i]); len(family) > 1 {
			return cascadeStarter(family, total)
		}
	}
	if models := profile.RequestedModels(); len(models) > 0 || len(profile.LLMs) == 0 {
		total := time.Duration(0)
		for i := range profile.Models {
			total += singleTime(&profile.Models[i])
		}
		return modelsStarter(models, max(defaultSLO, roundUp(5*total)))
	}
	return textStarter(profile.LLMs)
}

// singleTime returns how long a model takes at its smallest batch on the slowest device that it was measured on.
func singleTime(m *formats.ProfileModel) time.Duration {
	slowest := time.Duration(0)
	for _, x := range m.Measurements {
		if slices.ContainsFunc(m.Measurements, func(y formats.Measurement) bool {
			return y.Device == x.Device && y.Share == x.Share && y.Batch < x.Batch
		}) {
			continue
		}
		elapsed := time.Duration(0)
		for _, b := range x.Blocks {
			elapsed += b.WallUS.D()
		}
		slowest = max(slowest, elapsed)
	}
	return slowest
}

// measuredFamily returns the names of the models of records and how long they take one after the other, or nothing if
// one was not measured.
func measuredFamily(profile *formats.Profile, records *formats.Records) (family []string, total time.Duration) {
	for i := range records.Models {
		m := profile.FindModel(records.Models[i].Model)
		if m == nil || singleTime(m) == 0 {
			return nil, 0
		}
		family, total = append(family, m.Model), total+singleTime(m)
	}
	return family, total
}

// roundUp returns a time rounded up to two digits.
func roundUp(d time.Duration) time.Duration {
	unit := time.Microsecond
	for d > 99*unit {
		unit *= 10
	}
	return (d + unit - 1) / unit * unit
}

// modelsStarter returns a commented workload of models with an SLO.
func modelsStarter(models []string, slo time.Duration) string {
	var b strings.Builder
	b.WriteString(workloadHead + "models:\n")
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

// cascadeStarter returns a commented workload of a cascade. total is how long its models take one after the other.
func cascadeStarter(family []string, total time.Duration) string {
	return fmt.Sprintf(workloadHead+`cascade:
  family: [%s]  # the models of the records, in order of size
  slo:
    latency: %s     # of a request; the most accurate cascades that keep it are found
    percentile: p95
    # accuracy: 0.9   # in its place or beside it: the least latency, or the fewest devices
  qps:
    max: %.3g          # requests a second at most: half of what one device does if every model sees every request
    ranges: 4         # gears
    distribution: zipf  # how often each range of rates occurs; or measured: FILE (second,count)
`, strings.Join(document.Map(family, func(name *string) string { return fmt.Sprintf("%q", *name) }), ", "), document.Duration(roundUp(10*total)), 0.5/total.Seconds())
}

// Lengths of the requests of a starter workload of language models, unless their memory is too small.
const (
	starterPrompt = 500
	starterOutput = 200
)

// Of a starter workload of language models, a server that runs so many sequences at once answers twice the rate.
const starterSequences = 8

// starterInstance returns the first instance of a language model whose KV capacity is known, without which no plan is
// made, or the first one.
func starterInstance(m *formats.LLMProfile) (in *formats.LLMInstance, isComplete bool) {
	i := slices.IndexFunc(m.Instances, func(in formats.LLMInstance) bool { return in.KVTokens > 0 })
	return &m.Instances[max(i, 0)], i >= 0
}

// textStarter returns a commented workload of the language models whose KV capacity is known. The rate of all together
// is half of what the slowest of them answers that runs starterSequences sequences at once, or as many as it can.
func textStarter(llms []formats.LLMProfile) string {
	// Choose the models, and lengths that fit into the memory of all.
	var names, incomplete []string
	var instances []*formats.LLMInstance
	prompt, output := int64(starterPrompt), int64(starterOutput)
	for i := range llms {
		in, isComplete := starterInstance(&llms[i])
		if !isComplete {
			incomplete = append(incomplete, llms[i].Model)
			continue
		}
		names, instances = append(names, fmt.Sprintf("%q", llms[i].Model)), append(instances, in)
		prompt, output = min(prompt, max(1, in.KVTokens/8)), min(output, max(1, in.KVTokens/16))
	}
	note := ""
	if len(incomplete) > 0 {
		note = "# Left out, because the profile lacks their KV capacity (kv_tokens): " + strings.Join(incomplete, ", ") + "\n"
	}

	// Find how long a request takes alone on the slowest server, and the least rate of a server that runs several at once.
	slowest, leastRPS := time.Millisecond, math.Inf(1)
	for _, in := range instances {
		budget := int32(in.TokenBudget)
		if budget == 0 {
			budget = starterPrompt
		}
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
`, strings.Join(names, ", "), note, document.Duration(roundUp(5*slowest)), 0.5*leastRPS, prompt, output)
}
