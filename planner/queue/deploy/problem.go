package deploy

import (
	"slices"
	"time"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/planner/lists"
	"inferplan/policy"
	"inferplan/sim/llm"
)

// Problem is a workload and a cluster, for which instances are chosen.
type Problem struct {
	Models   []Model
	Classes  []Class
	Items    []Item // in the order of the plan's deployment
	Kinds    []Kind
	Pools    []formats.Pool
	Arrivals *formats.Arrivals

	// Caps are the numbers of concurrent sequences among which an instance chooses, rising.
	Caps []int
	// WarmModels is the number of models that a host keeps in memory beside those that run.
	WarmModels int
	Policy     formats.PolicySpec
	Seed       uint64
	Effort     int // factor on the length of runs
	// Surplus is a share of the allowed late requests, from 0 to 1, which is kept back, see kind.Problem.
	Surplus float64
	// Goodput says that requests may be late. Layouts are then compared by how many are in time, and runs
	// are never broken off.
	Goodput bool

	// Replay returns the arrivals of a run, with indexes of Items as models. If it is nil, arrivals are
	// drawn from the classes. Runs is the number of runs by which a layout is judged.
	Replay func(run int) []arrivals.Request
	Runs   int
	// NewPolicy returns the policy of a run. If it is nil, Policy names it. SearchTime returns how long a
	// re-plan takes that looked at so many positions, and SearchWork limits these positions.
	NewPolicy  func(t *policy.Tables) (policy.Policy, error)
	SearchTime func(worked int64) time.Duration
	SearchWork int64
}

// Model is a language model.
type Model struct {
	Name    string
	Profile *formats.LLMProfile
	ByKind  []*formats.LLMInstance // by kind. If the model cannot run there, it is nil.
}

// Class is a class of requests with an SLO of its own.
type Class struct {
	Name          string
	Figure        string // figure by which the SLO is judged: end to end, TTFT or TPOT
	SLO           time.Duration
	WaitingSLO    time.Duration // SLO on the time until a request starts
	Percentile    string
	RequiredShare float64 // share of the requests that must be in time
	Priority      int     // priority of the workload's class
	MaxTokens     int
	Prompt        *formats.Lengths
	Output        *formats.Lengths
	Sessions      *formats.Sessions
	Sample        []llm.Request // drawn lengths of prompts and answers
	JudgeGroup    int           // judge group: its classes are judged together
}

// Item is a class of requests for a model.
type Item struct {
	Model, Class int
	RPS          float64
	Weight       float64
}

// Kind is a sort of server: TP devices of a pool of the cluster.
type Kind struct {
	Pool         int
	Device       string
	TP           int
	MaxInstances int     // limit by the devices of the pool
	Price        float64 // price of an instance, in the unit of the objective
}

// RPS returns the rate of all items, in requests per second.
func (p *Problem) RPS() float64 {
	return lists.Sum(len(p.Items), func(i int) float64 { return p.Items[i].RPS })
}

// judgeGroups returns the number of judge groups: classes whose late requests are counted together.
func (p *Problem) judgeGroups() int {
	return lists.Max(0, len(p.Classes), func(i int) int { return p.Classes[i].JudgeGroup + 1 })
}

// requiredShare returns the share of the requests of a judge group (classes judged together) that must be in time, from 0 to 1. All
// classes of a group have the same. If no class is in it, it returns 0.
func (p *Problem) requiredShare(group int) float64 {
	for i := range p.Classes {
		if p.Classes[i].JudgeGroup == group {
			return p.Classes[i].RequiredShare
		}
	}
	return 0
}

// itemsOf returns the items of a model, as indexes of Items: one for each class of its requests.
func (p *Problem) itemsOf(model int) []int {
	return lists.Matching(len(p.Items), func(i int) bool { return p.Items[i].Model == model })
}

// ModelsOf returns the models (indexes of Models) that some items ask for, each once and in the order of the problem. An item is a class
// of requests for a model, here an index of Items.
func (p *Problem) ModelsOf(items []int) []int {
	var models []int
	for m := range p.Models {
		for _, i := range items {
			if p.Items[i].Model == m {
				models = append(models, m)
				break
			}
		}
	}
	return models
}

// maxSequences returns the largest cap that an instance of the model may have on a kind. If it cannot run there, it
// returns 0.
func (p *Problem) maxSequences(model, kind int) int {
	return slices.Max(append([]int{0}, p.capsOf(model, kind)...))
}

// capsOf returns the caps that an instance of the model may have on a kind of servers, rising (a cap limits the sequences that run at
// once): those of the problem's list that the server can run, or else just the server's own limit, at least 1. If the model cannot run
// there, it returns nil.
func (p *Problem) capsOf(model, kind int) []int {
	instance := p.Models[model].ByKind[kind]
	if instance == nil {
		return nil
	}
	caps := slices.DeleteFunc(slices.Clone(p.Caps), func(c int) bool { return instance.Sequences > 0 && c > instance.Sequences })
	if len(caps) == 0 {
		return []int{max(instance.Sequences, 1)}
	}
	return caps
}
