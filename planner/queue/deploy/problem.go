package deploy

import (
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/policy"
	"inferplan/sim/llm"
)

// Problem is what instances are chosen for.
type Problem struct {
	Models   []Model
	Classes  []Class
	Items    []Item // in the order of the deployment
	Kinds    []Kind
	Pools    []formats.Pool
	Arrivals *formats.Arrivals

	// Caps are the numbers of sequences at once among which an instance chooses, rising.
	Caps []int
	// Warm is the number of models that a host keeps beside those that run.
	Warm   int
	Policy formats.PolicySpec
	Seed   uint64
	Effort int // work allowed to the search
	// Surplus is a share of the requests that may be late, which is kept back, see kind.Problem.
	Surplus float64
	// Goodput says that requests may be late: layouts are compared by how many are not,
	// and runs are never broken off.
	Goodput bool

	// Replay has the arrivals of a run, with indexes of Items; nil: drawn from the
	// classes. Seeds is the number of runs that a layout is judged by.
	Replay func(run int) []arrivals.Request
	Seeds  int
	// Make makes the policy of a run; nil: that of Policy. SearchTime is how long a
	// re-plan that looked at so many positions takes, SearchWork bounds it.
	Make       func(t *policy.Tables) (policy.Policy, error)
	SearchTime func(worked int64) time.Duration
	SearchWork int64
}

// Model is a language model.
type Model struct {
	Name    string
	Profile *formats.LLMProfile
	On      []*formats.LLMInstance // by kind; nil: it cannot run there
}

// Class is a kind of requests with a target of its own.
type Class struct {
	Name       string
	Of         string
	SLO        time.Duration
	Waiting    time.Duration
	Percentile string
	Share      float64 // that must be in time
	Priority   int
	MaxTokens  int
	Prompt     *formats.Lengths
	Output     *formats.Lengths
	Sessions   *formats.Sessions
	Sample     []llm.Request // lengths drawn from it
	Judged     int           // classes with the same figure are judged together
}

// Item is a class of requests for a model.
type Item struct {
	Model, Class int
	RPS          float64
	Weight       float64
}

// Kind is a server: so many devices of a pool.
type Kind struct {
	Pool   int
	Device string
	TP     int
	Most   int     // instances that the pool has devices for
	Price  float64 // of an instance, by the objective
}

// RPS is the rate of all items.
func (p *Problem) RPS() float64 {
	sum := 0.0
	for i := range p.Items {
		sum += p.Items[i].RPS
	}
	return sum
}

// judged is the number of figures that classes are judged by.
func (p *Problem) judged() int {
	n := 0
	for i := range p.Classes {
		n = max(n, p.Classes[i].Judged+1)
	}
	return n
}

// share is the part that must be in time of a figure.
func (p *Problem) share(judged int) float64 {
	for i := range p.Classes {
		if p.Classes[i].Judged == judged {
			return p.Classes[i].Share
		}
	}
	return 0
}

// of lists the items of a model.
func (p *Problem) of(model int) []int {
	var out []int
	for i := range p.Items {
		if p.Items[i].Model == model {
			out = append(out, i)
		}
	}
	return out
}

// ModelsOf lists the models of items, in order.
func (p *Problem) ModelsOf(items []int) []int {
	var out []int
	for m := range p.Models {
		for _, i := range items {
			if p.Items[i].Model == m {
				out = append(out, m)
				break
			}
		}
	}
	return out
}

// most is the largest number of sequences that a model's instance may choose.
func (p *Problem) most(model, kind int) int {
	caps := p.capsOf(model, kind)
	return caps[len(caps)-1]
}

// capsOf are the numbers of sequences that an instance may choose: those that its
// server runs.
func (p *Problem) capsOf(model, kind int) []int {
	on := p.Models[model].On[kind]
	var out []int
	for _, c := range p.Caps {
		if on == nil || on.Sequences == 0 || c <= on.Sequences {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		out = append(out, on.Sequences)
	}
	return out
}
