package formats

import (
	"cmp"
	"fmt"
	"slices"

	"inferplan/formats/document"
)

// LLM are language models and the classes of requests that ask for them.
type LLM struct {
	Models  []string   `json:"models"` // names of the profile's llms
	Classes []LLMClass `json:"classes"`
}

// LLMClass is a kind of requests with a target of its own. It is asked of each of
// its models.
type LLMClass struct {
	Class       string       `json:"class,omitempty"`                                        // if absent, it is the only class, without a name
	Models      []string     `json:"models,omitempty" default:"all"`                         // the models that it asks for
	SLO         document.SLO `json:"slo"`                                                    // the target of the figure that Figure names
	Figure      string       `json:"of,omitempty" default:"e2e" check:"e2e|ttft|tpot"`       // e2e, ttft or tpot
	Percentile  string       `json:"percentile,omitempty" default:"p99" check:"percentile"`  //
	WaitingSLO  document.SLO `json:"waiting_slo,omitzero"`                                   // the target of the time from arrival to the first iteration
	Priority    int          `json:"priority,omitempty"`                                     // lower goes first, as in vLLM; strict
	RPS         float64      `json:"rps,omitempty"`                                          // the rate of all its models together
	Shares      []float64    `json:"shares,omitempty" default:"equal" check:"nonnegative"`   // the parts of the rate, in the order of the models
	MaxTokens   int          `json:"max_tokens,omitempty" default:"no limit" check:"tokens"` // the most tokens of an answer; longer ones are cut
	Prompt      *Lengths     `json:"prompt,omitempty"`                                       // tokens of a prompt
	Output      *Lengths     `json:"output,omitempty"`                                       // tokens of an answer, before MaxTokens
	LengthsFile string       `json:"lengths_file,omitempty"`                                 // CSV with prompt and output tokens, row by row
	Sessions    *Sessions    `json:"sessions,omitempty"`                                     //
	Arrivals    *Arrivals    `json:"arrivals,omitempty" default:"the workload"`              // a trace may bring the lengths
}

// Figures that an SLO may be of.
const (
	FigureE2E  = "e2e"  // arrival to last token
	FigureTTFT = "ttft" // arrival to first token
	FigureTPOT = "tpot" // first to last token, per token after the first
)

// Lengths is a distribution of token counts, cut at 1 and Max.
type Lengths struct {
	Distribution string    `json:"distribution" check:"fixed|normal|lognormal|log-t|empirical"` // fixed, normal, lognormal, log-t, empirical
	Mean         float64   `json:"mean,omitempty"`                                              // of the tokens
	SD           float64   `json:"sd,omitempty"`                                                // of the tokens
	Location     float64   `json:"location,omitempty"`                                          // log-t: of the logarithm
	Scale        float64   `json:"scale,omitempty"`                                             // log-t: of the logarithm
	Tail         float64   `json:"tail,omitempty"`                                              // log-t: degrees of freedom
	Max          int       `json:"max,omitempty" check:"tokens"`                                // tokens
	Tokens       []int     `json:"tokens,omitempty"`                                            // empirical: ascending
	Weights      []float64 `json:"weights,omitempty" check:"nonnegative"`                       // empirical: weights of the tokens; if absent, equal
}

// Distributions of token counts.
const (
	LengthsFixed     = "fixed"
	LengthsNormal    = "normal"
	LengthsLognormal = "lognormal"
	LengthsLogT      = "log-t"
	LengthsEmpirical = "empirical"
)

// Sessions describes requests that belong together: each prompt repeats earlier turns.
type Sessions struct {
	Turns        float64         `json:"turns" check:"count"`                           // mean requests of a session
	SharedTokens int             `json:"shared_tokens,omitempty" check:"cachedTokens"`  // prefix that all sessions have in common
	ThinkUS      document.Micros `json:"think_us,omitempty"`                            // mean time between an answer and the next request
	Repeats      float64         `json:"repeats,omitempty" default:"all" check:"share"` // share of the earlier turns that a prompt repeats
}

var llmPart = workloadPart{name: "llm", kind: PlanQueue, section: (*LLM)(nil), schema: schemaFile("workload.llm")}

// LLMOf returns the language models that a workload asks for, or nil if it asks for something else.
func LLMOf(w *Workload) *LLM { return workloadSection[*LLM](w) }

// WithDefaults returns the class with its defaults filled in, except for its models and shares.
func (d LLMClass) WithDefaults() LLMClass {
	d.Figure, d.Percentile = cmp.Or(d.Figure, FigureE2E), cmp.Or(d.Percentile, "p99")
	return d
}

// ModelShares returns the models that a class asks for, with their shares of its rate, which sum to 1. Without
// models these are all of the workload; without shares all are equal.
func (d *LLM) ModelShares(class int) (models []string, shares []float64) {
	c := &d.Classes[class]
	if models = c.Models; len(models) == 0 {
		models = d.Models
	}
	shares = make([]float64, len(models))
	sum := 0.0
	for i := range shares {
		shares[i] = 1
		if len(c.Shares) == len(models) {
			shares[i] = c.Shares[i]
		}
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return models, shares
}

// Files returns the files that the classes of a workload name: lengths of requests, and traces of arrivals.
func (d *LLM) Files() []SectionFile {
	var out []SectionFile
	for i := range d.Classes {
		c := &d.Classes[i]
		if c.LengthsFile != "" {
			out = append(out, SectionFile{Role: fmt.Sprintf("lengths[%d]", i), Path: c.LengthsFile})
		}
		if c.Arrivals != nil && c.Arrivals.Trace != "" {
			out = append(out, SectionFile{Role: fmt.Sprintf("trace[%d]", i), Path: c.Arrivals.Trace})
		}
	}
	return out
}

// check reports to c what is wrong with a workload of LLM requests: models and classes have names that occur once.
// A single class may go without a name.
func (d *LLM) check(c *document.Checker) {
	c.FailIf(len(d.Models) == 0, "llm.models", "an empty list", "at least one model")
	models := map[string]int{}
	for i, m := range d.Models {
		c.Name(models, i, m, "llm.models[%d]", i)
	}
	c.FailIf(len(d.Classes) == 0, "llm.classes", "an empty list", "at least one class")
	classes := map[string]int{}
	for i := range d.Classes {
		fieldPath := fmt.Sprintf("llm.classes[%d]", i)
		k := &d.Classes[i]
		if k.Class != "" || len(d.Classes) > 1 {
			c.Name(classes, i, k.Class, "%s.class", fieldPath)
			checkClassName(c, k.Class, fieldPath)
		}
		k.check(c, d, models, fieldPath)
	}
}

// check reports to c what is wrong with a class of LLM requests: its models, targets, rate, lengths of prompts and
// answers, sessions and arrivals. models has the workload's models by name.
func (k *LLMClass) check(c *document.Checker, d *LLM, models map[string]int, fieldPath string) {
	k.checkModels(c, d, models, fieldPath)
	checkSlo(c, k.SLO, fieldPath+".slo")
	if !k.WaitingSLO.IsZero() {
		checkSlo(c, k.WaitingSLO, fieldPath+".waiting_slo")
	}
	c.FailIf(k.RPS != 0 && !(k.RPS >= minRate && k.RPS <= maxRate), fieldPath+".rps", k.RPS, "a rate from %g to %g", minRate, maxRate)
	c.FailIf(k.LengthsFile != "" && (k.Prompt != nil || k.Output != nil), fieldPath+".lengths_file", "a file beside prompt or output", "one of the two")
	k.Prompt.check(c, fieldPath+".prompt")
	k.Output.check(c, fieldPath+".output")
	k.Arrivals.check(c, fieldPath+".arrivals")
}

// checkModels reports to c models of a class that the workload does not have, and shares that do not fit them.
// models has the workload's models by name.
func (k *LLMClass) checkModels(c *document.Checker, d *LLM, models map[string]int, fieldPath string) {
	indexByName := map[string]int{}
	for i, m := range k.Models {
		c.Name(indexByName, i, m, "%s.models[%d]", fieldPath, i)
		if _, ok := models[m]; !ok {
			c.Failf("the model "+document.Quote(m), "one of llm.models", document.DidYouMean(m, d.Models), "%s.models[%d]", fieldPath, i)
		}
	}
	if len(k.Shares) == 0 {
		return
	}
	modelCount := cmp.Or(len(k.Models), len(d.Models))
	sum := 0.0
	for _, x := range k.Shares {
		sum += x
	}
	c.FailIf(len(k.Shares) != modelCount || !(sum > 0), fieldPath+".shares", fmt.Sprintf("%d shares that sum to %s", len(k.Shares), document.FormatFloat(sum)), "%d, one per model, that sum to more than 0", modelCount)
}

// check reports to c a distribution of lengths that lacks parameters that it needs, or has others. Without a
// distribution, l is nil, and nothing is reported.
func (l *Lengths) check(c *document.Checker, fieldPath string) {
	if l == nil {
		return
	}
	empirical, logT := l.Distribution == LengthsEmpirical, l.Distribution == LengthsLogT
	positive := func(name string, x float64, isNeeded bool) {
		switch {
		case isNeeded && !(x > 0 && x <= maxTokens):
			c.Fail(fieldPath+"."+name, document.Number(x), fmt.Sprintf("above 0, at most %d", maxTokens), "")
		case !isNeeded && x != 0:
			c.Fail(fieldPath+"."+name, document.Number(x), "nothing with distribution "+l.Distribution, "")
		}
	}
	positive("mean", l.Mean, !empirical && !logT)
	positive("sd", l.SD, l.Distribution == LengthsNormal || l.Distribution == LengthsLognormal)
	positive("scale", l.Scale, logT)
	positive("tail", l.Tail, logT)
	c.FailIf(l.Location != 0 && !logT, fieldPath+".location", l.Location, "nothing with distribution "+l.Distribution)
	l.checkEmpirical(c, empirical, fieldPath)
}

// checkEmpirical reports to c wrong lengths and weights of an empirical distribution, which only such a one has.
func (l *Lengths) checkEmpirical(c *document.Checker, isEmpirical bool, fieldPath string) {
	if !isEmpirical {
		c.FailIf(len(l.Tokens) > 0 || len(l.Weights) > 0, fieldPath+".tokens", "a list", "nothing with distribution "+l.Distribution)
		return
	}
	c.FailIf(len(l.Tokens) == 0 || !slices.IsSorted(l.Tokens) || l.Tokens[0] < 1 || l.Tokens[len(l.Tokens)-1] > maxTokens, fieldPath+".tokens", fmt.Sprintf("%d lengths", len(l.Tokens)), "at least one, ascending, each from 1 to %d", maxTokens)
	if len(l.Weights) == 0 {
		return
	}
	sum := 0.0
	for _, w := range l.Weights {
		sum += w
	}
	c.FailIf(len(l.Weights) != len(l.Tokens) || !(sum > 0), fieldPath+".weights", fmt.Sprintf("%d weights that sum to %s", len(l.Weights), document.FormatFloat(sum)), "%d, one per length, that sum to more than 0", len(l.Tokens))
}
