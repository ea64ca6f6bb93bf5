package reference

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"inferplan/formats"
	"inferplan/formats/document"
)

// Plan is one recorded plan.
type Plan struct {
	Case          string         `json:"case"`
	Family        string         `json:"family"`
	Group         string         `json:"group"`
	Cluster       string         `json:"cluster"`
	GPUs          map[string]int `json:"gpus"`
	Gbps          float64        `json:"bw_gbps"`
	SLOMultiplier float64        `json:"slo_multiplier"`
	Weights       []float64      `json:"weights"`
	Algorithm     string         `json:"algorithm"` // NP, DART-r, PPipe
	Empty         bool           `json:"empty"`
	Shares        map[string]int `json:"mps_levels"`
	PerNode       map[string]int `json:"gpus_per_server"`
	MaxPartitions int            `json:"max_partitions"`
	Margin        float64        `json:"slo_margin_fraction"`
	BatchBuild    float64        `json:"batch_build_factor"`
	Objective     float64        `json:"objective_min_weighted_rps"`
	TotalRPS      float64        `json:"total_rps"`
	Gap           *float64       `json:"milp_gap"`
	SolveSeconds  *float64       `json:"milp_solve_s"`
	DNNs          []DNN          `json:"dnns"`
}

// DNN is one model of a plan. Times are in microseconds, rates in requests/s.
type DNN struct {
	Model     string     `json:"model"`
	SLOUS     float64    `json:"slo_us"`
	MarginUS  float64    `json:"slo_margin_us"`
	BuildRPS  float64    `json:"est_rps_for_batch_building"`
	RPS       float64    `json:"rps"`
	Pipelines []Pipeline `json:"pipelines"`
}

// Pipeline is one pooled pipeline.
type Pipeline struct {
	RPS        float64     `json:"rps"`
	BuildUS    float64     `json:"batch_build_est_us"`
	Partitions []Partition `json:"partitions"`
}

// Partition is one stage. RPS is nil where the record has none.
type Partition struct {
	Blocks     [2]int   `json:"blocks"` // [first, last)
	GPU        string   `json:"gpu"`
	Share      int      `json:"vgpu_denominator"`
	Batch      int      `json:"batch"`
	GPUs       float64  `json:"num_physical_gpus"`
	Replicas   int      `json:"num_vgpus"`
	InferUS    float64  `json:"infer_us"`
	TransferUS float64  `json:"transfer_us"`
	RPS        *float64 `json:"rps"`
}

// plans is the list that a file holds.
type plans []Plan

// maxBytes bounds a file.
const maxBytes = 1 << 28

// Read reads all plans. Errors call the file by name.
func Read(r io.Reader, name string) ([]Plan, error) {
	var list plans
	err := document.ReadJSON(r, name, "a JSON list of recorded plans", maxBytes, document.AllFields, &list)
	return list, err
}

// Bounds of numbers of devices, replicas and blocks, and of rates and times.
const (
	maxCount  = 1_000_000
	maxAmount = 1e15
)

const notAnAmount = "a number out of range"

// amounts returns true if all numbers are from 0 to a bound.
func amounts(list ...float64) bool {
	return !slices.ContainsFunc(list, func(v float64) bool { return !(v >= 0 && v < maxAmount) })
}

// Validate checks what the types leave open.
func (list plans) Validate() error {
	var c document.Checker
	for i := range list {
		list[i].check(&c, fmt.Sprintf("[%d]", i))
	}
	return c.Err()
}

func (p *Plan) check(c *document.Checker, at string) {
	c.FailIf(p.Case == "", at+".case", "nothing", "a name")
	c.FailIf(p.Algorithm == "", at+".algorithm", "nothing", "NP, DART-r or PPipe")
	c.FailIf(!(p.Margin >= 0 && p.Margin < 1), at+".slo_margin_fraction", p.Margin, "0 to less than 1")
	c.FailIf(!amounts(p.BatchBuild, p.Gbps, p.Objective), at+".objective_min_weighted_rps", notAnAmount, "0 or more")
	c.FailIf(p.MaxPartitions < 1 || p.MaxPartitions > 8, at+".max_partitions", p.MaxPartitions, "1 to 8")
	for _, k := range p.kinds() {
		c.FailIf(p.GPUs[k] < 0 || p.GPUs[k] > maxCount, at+".gpus."+k, p.GPUs[k], "a count of devices")
		c.FailIf(p.Shares[k] < 1 || p.Shares[k] > 64, at+".mps_levels."+k, p.Shares[k], "1 to 64 shares")
		c.FailIf(p.PerNode[k] < 1 || p.PerNode[k] > maxCount, at+".gpus_per_server."+k, p.PerNode[k], "1 or more")
	}
	if c.FailIf(len(p.Weights) != len(p.DNNs), at+".weights", fmt.Sprintf("%d weights", len(p.Weights)), "%d, one per DNN", len(p.DNNs)) {
		return
	}
	for i := range p.DNNs {
		c.FailIf(!(p.Weights[i] > 0 && p.Weights[i] < maxAmount), fmt.Sprintf("%s.weights[%d]", at, i), p.Weights[i], "more than 0")
		p.DNNs[i].check(c, p, fmt.Sprintf("%s.dnns[%d]", at, i))
	}
}

func (d *DNN) check(c *document.Checker, p *Plan, at string) {
	c.FailIf(d.Model == "", at+".model", "nothing", "a name")
	c.FailIf(!(d.SLOUS > 0 && d.SLOUS <= 1e12), at+".slo_us", d.SLOUS, "more than 0 microseconds")
	c.FailIf(!amounts(d.MarginUS, d.BuildRPS, d.RPS), at, notAnAmount, "0 or more")
	for j := range d.Pipelines {
		l, at := &d.Pipelines[j], fmt.Sprintf("%s.pipelines[%d]", at, j)
		c.FailIf(!amounts(l.RPS, l.BuildUS), at, notAnAmount, "0 or more")
		c.FailIf(len(l.Partitions) == 0 || len(l.Partitions) > p.MaxPartitions, at+".partitions", fmt.Sprintf("%d partitions", len(l.Partitions)), "1 to %d", p.MaxPartitions)
		for s := range l.Partitions {
			l.Partitions[s].check(c, p, l.Partitions[0].Batch, fmt.Sprintf("%s.partitions[%d]", at, s))
		}
	}
}

func (s *Partition) check(c *document.Checker, p *Plan, batch int, at string) {
	_, known := p.GPUs[s.GPU]
	c.FailIf(!known, at+".gpu", strconv.Quote(s.GPU), "one of "+strings.Join(p.kinds(), ", "))
	c.FailIf(s.Batch != batch || s.Batch < 1 || s.Batch > maxCount, at+".batch", s.Batch, "one batch size of 1 or more for all partitions of a pipeline")
	c.FailIf(s.Replicas < 1 || s.Replicas > maxCount, at+".num_vgpus", s.Replicas, "1 or more")
	c.FailIf(known && (s.Share < 1 || s.Share > p.Shares[s.GPU]), at+".vgpu_denominator", s.Share, "1 to %d", p.Shares[s.GPU])
	c.FailIf(!amounts(s.GPUs, s.InferUS, s.TransferUS) || s.RPS != nil && !amounts(*s.RPS), at, notAnAmount, "0 or more")
}

// kinds are the device kinds in order.
func (p *Plan) kinds() []string {
	return slices.Sorted(maps.Keys(p.GPUs))
}

// Find picks the plan of a case and an algorithm; the name of an algorithm
// counts in any case.
func Find(plans []Plan, file, name, algorithm string) (*Plan, error) {
	var algorithms, cases []string
	for i := range plans {
		p := &plans[i]
		if p.Case != name {
			if !slices.Contains(cases, p.Case) {
				cases = append(cases, p.Case)
			}
			continue
		}
		if strings.EqualFold(p.Algorithm, algorithm) {
			return p, nil
		}
		algorithms = append(algorithms, p.Algorithm)
	}
	if len(algorithms) > 0 {
		return nil, &document.Error{File: file, Path: "algorithm", Found: fmt.Sprintf("no plan %q of %s", algorithm, name), Expected: strings.Join(algorithms, " or ")}
	}
	e := &document.Error{File: file, Path: "case", Found: fmt.Sprintf("no case %q", name), Expected: fmt.Sprintf("one of its %d cases", len(cases))}
	if e.Hint = document.DidYouMean(name, cases); e.Hint == "" && len(cases) > 0 {
		e.Hint = "such as " + cases[0]
	}
	return nil, e
}

// Micros is a recorded time.
func Micros(us float64) document.Micros {
	return document.Micros(math.Round(us * float64(time.Microsecond)))
}

// ClusterDocument is the cluster that the plan was made for.
func (p *Plan) ClusterDocument() *formats.Cluster {
	out := &formats.Cluster{Format: "inferplan.cluster/v1"}
	for _, k := range p.kinds() {
		out.Pools = append(out.Pools, formats.Pool{Device: k, Count: p.GPUs[k], MaxShares: p.Shares[k], PerNode: p.PerNode[k], NICGbps: p.Gbps})
	}
	return out
}
