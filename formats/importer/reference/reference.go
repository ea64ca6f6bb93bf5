package reference

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"inferplan/formats"
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

// Read reads all plans; name is what errors call the file.
func Read(r io.Reader, name string) ([]Plan, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	line := func() int {
		at := min(int(dec.InputOffset()), len(data))
		return 1 + bytes.Count(data[:at], []byte("\n"))
	}
	fail := func(path, found, expected string) error {
		return &formats.Error{File: name, Line: line(), Path: path, Found: found, Expected: expected}
	}
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil, fail("", "no list", "a JSON list of recorded plans")
	}
	var out []Plan
	for i := 0; dec.More(); i++ {
		at := fmt.Sprintf("[%d]", i)
		var p Plan
		if err := dec.Decode(&p); err != nil {
			return nil, decodeError(err, fail, at)
		}
		if err := p.validate(at); err != nil {
			var bad *formats.Error
			if errors.As(err, &bad) {
				bad.File, bad.Line = name, line()
			}
			return nil, err
		}
		out = append(out, p)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fail("", "an end before the list's", "a closing ]")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fail("", "text after the list", "the end of the file")
	}
	return out, nil
}

func decodeError(err error, fail func(path, found, expected string) error, at string) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fail(at+"."+kind.Field, "a "+kind.Value, "a "+kind.Type.String())
	}
	return fail(at, strings.TrimPrefix(err.Error(), "json: "), "a recorded plan")
}

// maxCount bounds numbers of devices, replicas and blocks.
const maxCount = 1_000_000

// validate checks what the types leave open.
func (p *Plan) validate(at string) error {
	bad := func(path string, found any, expected string) error {
		return &formats.Error{Path: at + "." + path, Found: fmt.Sprint(found), Expected: expected}
	}
	amount := func(v float64) bool { return v >= 0 && !math.IsInf(v, 0) && v < 1e15 }
	switch {
	case p.Case == "":
		return bad("case", "nothing", "a name")
	case p.Algorithm == "":
		return bad("algorithm", "nothing", "NP, DART-r or PPipe")
	case len(p.Weights) != len(p.DNNs):
		return bad("weights", fmt.Sprintf("%d weights", len(p.Weights)), fmt.Sprintf("%d, one per DNN", len(p.DNNs)))
	case !(p.Margin >= 0 && p.Margin < 1):
		return bad("slo_margin_fraction", p.Margin, "0 to less than 1")
	case !amount(p.BatchBuild) || !amount(p.Gbps) || !amount(p.Objective):
		return bad("objective_min_weighted_rps", "a number out of range", "0 or more")
	case p.MaxPartitions < 1 || p.MaxPartitions > 8:
		return bad("max_partitions", p.MaxPartitions, "1 to 8")
	}
	for _, k := range p.kinds() {
		if n := p.GPUs[k]; n < 0 || n > maxCount {
			return bad("gpus."+k, n, "a count of devices")
		}
		if v := p.Shares[k]; v < 1 || v > 64 {
			return bad("mps_levels."+k, v, "1 to 64 shares")
		}
		if n := p.PerNode[k]; n < 1 || n > maxCount {
			return bad("gpus_per_server."+k, n, "1 or more")
		}
	}
	for i := range p.DNNs {
		d := &p.DNNs[i]
		at := fmt.Sprintf("dnns[%d]", i)
		switch {
		case d.Model == "":
			return bad(at+".model", "nothing", "a name")
		case !(p.Weights[i] > 0) || !amount(p.Weights[i]):
			return bad(fmt.Sprintf("weights[%d]", i), p.Weights[i], "more than 0")
		case !(d.SLOUS > 0) || d.SLOUS > 1e12:
			return bad(at+".slo_us", d.SLOUS, "more than 0 microseconds")
		case !amount(d.MarginUS) || !amount(d.BuildRPS) || !amount(d.RPS):
			return bad(at, "a number out of range", "0 or more")
		}
		for j := range d.Pipelines {
			pl := &d.Pipelines[j]
			at := fmt.Sprintf("%s.pipelines[%d]", at, j)
			if !amount(pl.RPS) || !amount(pl.BuildUS) {
				return bad(at, "a number out of range", "0 or more")
			}
			if len(pl.Partitions) == 0 || len(pl.Partitions) > p.MaxPartitions {
				return bad(at+".partitions", fmt.Sprintf("%d partitions", len(pl.Partitions)), fmt.Sprintf("1 to %d", p.MaxPartitions))
			}
			for s := range pl.Partitions {
				part := &pl.Partitions[s]
				at := fmt.Sprintf("%s.partitions[%d]", at, s)
				if _, ok := p.GPUs[part.GPU]; !ok {
					return bad(at+".gpu", fmt.Sprintf("%q", part.GPU), "one of "+strings.Join(p.kinds(), ", "))
				}
				switch {
				case part.Batch != pl.Partitions[0].Batch || part.Batch < 1 || part.Batch > maxCount:
					return bad(at+".batch", part.Batch, "one batch size of 1 or more for all partitions of a pipeline")
				case part.Replicas < 1 || part.Replicas > maxCount:
					return bad(at+".num_vgpus", part.Replicas, "1 or more")
				case part.Share < 1 || part.Share > p.Shares[part.GPU]:
					return bad(at+".vgpu_denominator", part.Share, fmt.Sprintf("1 to %d", p.Shares[part.GPU]))
				case !amount(part.GPUs) || !amount(part.InferUS) || !amount(part.TransferUS) || part.RPS != nil && !amount(*part.RPS):
					return bad(at, "a number out of range", "0 or more")
				}
			}
		}
	}
	return nil
}

// kinds are the device kinds in order.
func (p *Plan) kinds() []string {
	var out []string
	for k := range p.GPUs {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
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
		return nil, &formats.Error{File: file, Path: "algorithm", Found: fmt.Sprintf("no plan %q of %s", algorithm, name), Expected: strings.Join(algorithms, " or ")}
	}
	e := &formats.Error{File: file, Path: "case", Found: fmt.Sprintf("no case %q", name), Expected: fmt.Sprintf("one of its %d cases", len(cases))}
	if e.Hint = formats.DidYouMean(name, cases); e.Hint == "" && len(cases) > 0 {
		e.Hint = "such as " + cases[0]
	}
	return nil, e
}

// Micros is a recorded time.
func Micros(us float64) formats.Micros {
	return formats.Micros(math.Round(us * float64(time.Microsecond)))
}

// ClusterDocument is the cluster that the plan was made for.
func (p *Plan) ClusterDocument() *formats.Cluster {
	out := &formats.Cluster{Format: "inferplan.cluster/v1"}
	for _, k := range p.kinds() {
		out.Pools = append(out.Pools, formats.Pool{Device: k, Count: p.GPUs[k], MaxShares: p.Shares[k], PerNode: p.PerNode[k], NICGbps: p.Gbps})
	}
	return out
}
