package formats

import (
	"fmt"
	"math"
	"slices"

	"inferplan/formats/document"
)

// FlowGeneration is a module of a plan of workflows that is a language model. Its instances are
// by kind of device, with the KV memory and the sequences at once that were planned. The
// KV memory is the module's working bytes.
type FlowGeneration struct {
	PromptMean      float64       `json:"prompt_mean"` // tokens of a task of the usual work
	OutputMean      float64       `json:"output_mean"`
	KVBytesPerToken int64         `json:"kv_bytes_per_token"`
	Instances       []LLMInstance `json:"instances"`
}

// InstanceOn returns how the language model runs on a kind of device, or nil if it does not run there.
func (l *FlowGeneration) InstanceOn(device string) *LLMInstance {
	return document.First(l.Instances, func(in *LLMInstance) bool { return in.Device == device })
}

// Generates reports whether the module's model is a language model, whose tasks are described by their tokens.
func (m *Module) Generates() bool {
	return m.Prompt != nil || m.Output != nil || m.LengthsFile != "" || len(m.Sample) > 0
}

// TokenLengths returns the distributions of the lengths of a module's prompts and answers, each for itself.
// Recorded lengths become empirical distributions. Both are nil if the lengths are in a file that was not read.
func (m *Module) TokenLengths() (prompt, output *Lengths) {
	if len(m.Sample) == 0 {
		return m.Prompt, m.Output
	}
	var columns [2]*Lengths
	for c := range columns {
		columns[c] = &Lengths{Distribution: LengthsEmpirical}
		for _, row := range m.Sample {
			columns[c].Tokens = append(columns[c].Tokens, row[c])
		}
		slices.Sort(columns[c].Tokens)
	}
	return columns[0], columns[1]
}

// MaxSampleRows is the most rows of a sample.
const MaxSampleRows = 1000

// checkRecorded reports to c recorded lengths of prompts and answers that are too long, too many, or beside a
// distribution.
func checkRecorded(c *document.Checker, m *Module, fieldPath string) {
	c.FailIf(m.Prompt != nil || m.Output != nil, fieldPath+".prompt", "a distribution beside recorded lengths", "one of the two")
	c.HintIf(len(m.Sample) > MaxSampleRows, fieldPath+".sample", fmt.Sprintf("%d rows", len(m.Sample)), fmt.Sprintf("at most %d", MaxSampleRows), "lengths_file takes longer lists")
	for i, row := range m.Sample {
		if c.FailIf(min(row[0], row[1]) < 1 || max(row[0], row[1]) > maxTokens, fmt.Sprintf("%s.sample[%d]", fieldPath, i), fmt.Sprint(row), "prompt and answer of 1 to %d tokens", maxTokens) {
			return
		}
	}
}

// MaxTokens returns the largest number of tokens that the distribution can give, or 0 if it has no limit.
func (l *Lengths) MaxTokens() int {
	switch {
	case l == nil:
		return 0
	case l.Distribution == LengthsEmpirical && len(l.Tokens) > 0:
		if longest := l.Tokens[len(l.Tokens)-1]; l.Max == 0 || longest < l.Max {
			return longest
		}
	case l.Distribution == LengthsFixed:
		return int(math.Ceil(l.Mean))
	}
	return l.Max
}

// unlimitedLengths are the distributions whose lengths have no limit unless max cuts them.
var unlimitedLengths = []string{LengthsNormal, LengthsLognormal, LengthsLogT}

// checkTokens reports to c what is wrong with the tokens of a module that asks for a language model. Other modules
// have none.
func checkTokens(c *document.Checker, m *Module, fieldPath string) {
	if !m.Generates() {
		return
	}
	c.HintIf(m.Work != 0, fieldPath+".work", m.Work, "nothing beside prompt and output", "the tokens say how much work it is")
	if m.LengthsFile != "" || len(m.Sample) > 0 {
		checkRecorded(c, m, fieldPath)
		return
	}

	// Both need a distribution with a largest length.
	for _, f := range [...]struct {
		name string
		l    *Lengths
	}{{"prompt", m.Prompt}, {"output", m.Output}} {
		entryPath := fieldPath + "." + f.name
		if f.l == nil {
			c.Fail(entryPath, "nothing", "tokens of both prompt and output", "a language model reads the one and makes the other")
			continue
		}
		errorsBefore := c.Count()
		f.l.check(c, entryPath)
		c.HintIf(c.Count() == errorsBefore && slices.Contains(unlimitedLengths, f.l.Distribution) && f.l.MaxTokens() == 0, entryPath+".max", "nothing", "the most tokens of distribution "+f.l.Distribution, "KV memory is planned for the longest sequence: max: 2048 cuts what is longer")
	}
}

// checkSameUnits reports to c models that one module asks for by tokens and another without: their work would be
// counted in two units.
func (s Applications) checkSameUnits(c *document.Checker) {
	type use struct {
		tokens bool
		at     string
	}
	firstUse := map[string]use{}
	for i := range s {
		for k := range s[i].Segments {
			for j := range s[i].Segments[k].Modules {
				m, fieldPath := &s[i].Segments[k].Modules[j], fmt.Sprintf("applications[%d].segments[%d].modules[%d]", i, k, j)
				for _, name := range m.Services() {
					firstSeen, seenBefore := firstUse[name]
					c.HintIf(seenBefore && firstSeen.tokens != m.Generates(), fieldPath+".prompt", "the model "+document.Quote(name)+" with tokens in one module and without in another", "tokens in all modules that ask for it, or in none", "the other one is "+firstSeen.at)
					firstUse[name] = use{m.Generates(), fieldPath}
				}
			}
		}
	}
}

// checkGeneration reports to p what is wrong with module i if it is a language model: its tokens, and an instance
// for each of its pipelines, whose KV memory holds them.
func (f *FlowPlan) checkGeneration(p *planChecker, i int) {
	l, fieldPath := f.Modules[i].Generation, fmt.Sprintf("flow.modules[%d].generation", i)
	if l == nil {
		return
	}
	p.FailIf(!(l.PromptMean >= 1 && l.PromptMean <= maxTokens) || !(l.OutputMean >= 1 && l.OutputMean <= maxTokens), fieldPath, fmt.Sprintf("a prompt of %g tokens and an answer of %g", l.PromptMean, l.OutputMean), "1 to %d of each", maxTokens)
	p.FailIf(l.KVBytesPerToken < 1 || l.KVBytesPerToken > maxLLMBytes, fieldPath+".kv_bytes_per_token", l.KVBytesPerToken, "1 or more")
	d := &p.plan.Deployment[i]
	for k := range l.Instances {
		in, entryPath := &l.Instances[k], fmt.Sprintf("%s.instances[%d]", fieldPath, k)
		in.check(p.Checker, entryPath)
		n := slices.IndexFunc(d.Pipelines, func(l Pipeline) bool { return len(l.Stages) > 0 && l.Stages[0].Device == in.Device })
		switch {
		case n < 0:
			p.Fail(entryPath+".device", document.Quote(in.Device), "the device of a pipeline of "+d.Model, "")
		case in.Sequences != d.Pipelines[n].Batch || in.KVTokens < 1:
			p.Fail(entryPath, fmt.Sprintf("%d sequences with %d tokens of KV memory", in.Sequences, in.KVTokens), fmt.Sprintf("the %d sequences of the pipeline, and KV memory", d.Pipelines[n].Batch), "")
		case in.KVTokens > f.Modules[i].CostOn(in.Device).WorkingBytes/max(1, l.KVBytesPerToken):
			p.Fail(entryPath+".kv_tokens", document.FormatWhole(in.KVTokens), fmt.Sprintf("at most the %d that working_bytes hold", f.Modules[i].CostOn(in.Device).WorkingBytes/max(1, l.KVBytesPerToken)), "")
		}
	}
	p.FailIf(len(l.Instances) != len(d.Pipelines), fieldPath+".instances", fmt.Sprintf("%d instances", len(l.Instances)), "one for each of the %d pipelines", len(d.Pipelines))
}

// Generations returns the modules of a plan that are language models, by their names.
func (f *FlowPlan) Generations() map[string]*FlowGeneration {
	out := map[string]*FlowGeneration{}
	for i := range f.Modules {
		if l := f.Modules[i].Generation; l != nil {
			out[f.Modules[i].Model] = l
		}
	}
	return out
}
