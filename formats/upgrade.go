package formats

import (
	"reflect"
	"strings"

	"inferplan/formats/document"
)

// planV1 is a plan of version 1. It has one form for the options and promises of all kinds. Each of its models
// holds both the promise and the deployment.
type planV1 struct {
	Format      string        `json:"format"` // inferplan.plan/v1
	Kind        string        `json:"kind"`
	Tool        Tool          `json:"tool"`
	Seed        uint64        `json:"seed"`
	Algorithm   string        `json:"algorithm"`
	Objective   Objective     `json:"objective"`
	StoppedBy   string        `json:"stopped_by"`
	Inputs      []Input       `json:"inputs"`
	Options     planOptionsV1 `json:"options"`
	Pools       []Pool        `json:"pools"`
	Models      []planModelV1 `json:"models"`
	Gear        *GearPlan     `json:"gear,omitempty"`
	Policy      PolicySpec    `json:"policy"`
	Execution   []Execution   `json:"execution,omitempty"`
	Arrivals    *Arrivals     `json:"arrivals,omitempty"`
	Certificate *Certificate  `json:"certified,omitempty"`
	Replan      *Replan       `json:"replan,omitempty"`
	Limits      []Limit       `json:"limits,omitempty"`
	Assumptions []string      `json:"assumptions,omitempty"`
	Warnings    []string      `json:"warnings,omitempty"`
}

type planOptionsV1 struct {
	Margin        float64 `json:"margin"`
	GPURounding   string  `json:"gpu_rounding"`
	MaxPartitions int     `json:"max_partitions"`
	SLO           string  `json:"slo,omitempty"`
	CutDType      string  `json:"cut_dtype,omitempty"`
	MaxBatch      int     `json:"max_batch,omitempty"`
	Blocks        int     `json:"blocks,omitempty"`
	BlocksBy      string  `json:"blocks_by,omitempty"`
	BatchBuild    float64 `json:"batch_build,omitempty"`
	MinLoadRPS    float64 `json:"min_load_rps,omitempty"`
	GapTarget     float64 `json:"gap_target"`
	Effort        int     `json:"effort"`
}

type planModelV1 struct {
	Served
	SHA256    string       `json:"sha256,omitempty"`
	Inputs    []TensorInfo `json:"inputs,omitempty"`
	Outputs   []TensorInfo `json:"outputs,omitempty"`
	NumBlocks int          `json:"num_blocks"`
	Pipelines []Pipeline   `json:"pipelines"`
}

// Upgrade returns a plan of version 1 in today's form. Options that the plan's kind never read are dropped,
// because version 1 stored those of all kinds.
func (old *planV1) Upgrade() (document.Document, error) {
	var c document.Checker
	p := &Plan{
		Format: FormatPlan, Kind: old.Kind, Tool: old.Tool, Seed: old.Seed, Algorithm: old.Algorithm, Objective: old.Objective,
		StoppedBy: old.StoppedBy, Inputs: old.Inputs, Pools: old.Pools, Deployment: make([]Deployed, 0, len(old.Models)),
		Policy: old.Policy, Execution: old.Execution, Arrivals: old.Arrivals, Certificate: old.Certificate, Replan: old.Replan,
		Limits: old.Limits, Assumptions: old.Assumptions, Warnings: old.Warnings,
	}
	for i := range old.Models {
		m := &old.Models[i]
		p.Deployment = append(p.Deployment, Deployed{Model: m.Model, Class: m.Class, SHA256: m.SHA256, Inputs: m.Inputs, Outputs: m.Outputs,
			NumBlocks: m.NumBlocks, Pipelines: m.Pipelines})
	}

	// The options and the section are those of the plan's kind.
	kind := planKindOf(old.Kind)
	if kind == nil {
		c.OneOf("kind", old.Kind, PlanKinds()...)
		return nil, c.Err()
	}
	p.Options = document.NewValues(kind.options)
	old.setOptions(&c, &p.Options)
	if err := c.Err(); err != nil {
		return nil, err
	}
	p.Options = p.Options.PlanForm()
	old.setSection(p)
	return p, nil
}

// setOptions copies to v the options of the old plan that its kind has. Wrong ones are reported to c.
func (old *planV1) setOptions(c *document.Checker, v *document.Values) {
	o := &old.Options
	var slo document.SLO
	if o.SLO != "" {
		parsed, err := document.ParseSLO(o.SLO)
		c.FailIf(err != nil, "options.slo", "the text "+document.Quote(o.SLO), "a latency target such as \"200ms\" or \"5x\"")
		slo = parsed
	}
	for _, option := range v.Options() {
		value, ok := map[string]any{
			"margin": o.Margin, "gpu_rounding": o.GPURounding, "max_partitions": o.MaxPartitions, "slo": slo, "cut_dtype": o.CutDType,
			"max_batch": o.MaxBatch, "blocks": o.Blocks, "blocks_by": o.BlocksBy, "batch_build": o.BatchBuild, "min_load_rps": o.MinLoadRPS,
			"gap_target": o.GapTarget, "effort": o.Effort,
		}[option.Key]
		_, isNumber := value.(float64)
		if !ok || !isNumber && reflect.ValueOf(value).IsZero() {
			continue // left out: the default
		}
		if wrong, hint := option.Wrong(value); wrong != "" {
			c.Fail("options."+option.Key, wrong, option.PlanForm().Expected(), hint)
			continue
		}
		v.Put(option.Name, value)
	}
}

// setSection moves the old plan's promises into the section that plans of its kind have today.
func (old *planV1) setSection(p *Plan) {
	if old.Gear != nil {
		p.Section = old.Gear // of whatever kind the plan says it is: validation compares
		return
	}
	if old.Kind != PlanPool {
		return
	}
	s := &PoolPlan{}
	for i := range old.Models {
		s.Models = append(s.Models, old.Models[i].Served)
	}
	p.Section = s
}

// Path returns the path in version 1 of a field that has currentPath today, so that errors name the field in the
// file.
func (old *planV1) Path(currentPath string) string {
	if rest, ok := strings.CutPrefix(currentPath, "deployment"); ok {
		return "models" + rest
	}
	return strings.TrimPrefix(currentPath, PlanPool+".")
}
