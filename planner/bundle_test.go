package planner

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"inferplan/formats"
)

// The reference data of PPipe (USENIX ATC 2025): measurements and the authors'
// own plans. It is not part of this repository.

func bundleDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("INFERPLAN_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	dir = filepath.Join(dir, "ppipe")
	if _, err := os.Stat(filepath.Join(dir, "reference_plans_dev.json")); err != nil {
		t.Skipf("the PPipe reference data is not here: set INFERPLAN_DATA to the folder that holds ppipe/ (%v)", err)
	}
	return dir
}

type refPlan struct {
	Case          string         `json:"case"`
	Family        string         `json:"family"`
	Group         string         `json:"group"`
	Cluster       string         `json:"cluster"`
	GPUs          map[string]int `json:"gpus"`
	Gbps          float64        `json:"bw_gbps"`
	Weights       []float64      `json:"weights"`
	Algorithm     string         `json:"algorithm"`
	Shares        map[string]int `json:"mps_levels"`
	PerNode       map[string]int `json:"gpus_per_server"`
	MaxPartitions int            `json:"max_partitions"`
	Margin        float64        `json:"slo_margin_fraction"`
	BatchBuild    float64        `json:"batch_build_factor"`
	Objective     float64        `json:"objective_min_weighted_rps"`
	DNNs          []refDNN       `json:"dnns"`
}

type refDNN struct {
	Model    string  `json:"model"`
	SLOUS    float64 `json:"slo_us"`
	BuildRPS float64 `json:"est_rps_for_batch_building"`
	RPS      float64 `json:"rps"`
}

func refPlans(t testing.TB, dir string) []refPlan {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "reference_plans_dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out []refPlan
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func readCSV(t testing.TB, path string) [][]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows[1:]
}

func atoi(t testing.TB, s string) int {
	t.Helper()
	v, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func micros(us float64) formats.Micros { return formats.Micros(time.Duration(us*1000 + 0.5)) }

// bundleProfile reads the measurements of all 18 models.
func bundleProfile(t testing.TB, dir string) *formats.Profile {
	t.Helper()
	type key struct {
		model, gpu string
		v, b       int
	}
	blocks := map[key]map[int]formats.Micros{}
	var keys []key
	for _, row := range readCSV(t, filepath.Join(dir, "block_latency.csv")) {
		k := key{row[0], row[1], atoi(t, row[2]), atoi(t, row[4])}
		if blocks[k] == nil {
			blocks[k] = map[int]formats.Micros{}
			keys = append(keys, k)
		}
		us, err := strconv.ParseFloat(row[5], 64)
		if err != nil {
			t.Fatal(err)
		}
		blocks[k][atoi(t, row[3])] = micros(us)
	}
	cuts := map[string]map[int]int64{}
	for _, row := range readCSV(t, filepath.Join(dir, "cut_sizes.csv")) {
		if cuts[row[0]] == nil {
			cuts[row[0]] = map[int]int64{}
		}
		cuts[row[0]][atoi(t, row[1])] = int64(atoi(t, row[2]))
	}
	p := &formats.Profile{Format: "inferplan.profile/v1"}
	for _, k := range keys {
		i := slices.IndexFunc(p.Models, func(m formats.ProfileModel) bool { return m.Model == k.model })
		if i < 0 {
			m := formats.ProfileModel{Model: k.model}
			for b := range len(blocks[k]) {
				m.Blocks = append(m.Blocks, formats.Block{Name: fmt.Sprint(b), CutBytesFP16: cuts[k.model][b]})
			}
			m.Blocks[len(m.Blocks)-1].CutBytesFP16 = 0
			p.Models = append(p.Models, m)
			i = len(p.Models) - 1
		}
		ms := formats.Measurement{Device: k.gpu, Share: k.v, Batch: k.b}
		for b := range len(blocks[k]) {
			ms.Blocks = append(ms.Blocks, formats.Latency{WallUS: blocks[k][b]})
		}
		p.Models[i].Measurements = append(p.Models[i].Measurements, ms)
	}
	return p
}

// inputs are the documents of a reference case.
func (ref *refPlan) inputs(p *formats.Profile) Inputs {
	in := Inputs{Profile: p, Cluster: &formats.Cluster{Format: "inferplan.cluster/v1"}, Workload: &formats.Workload{Format: "inferplan.workload/v1"}}
	var kinds []string
	for k := range ref.GPUs {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		in.Cluster.Pools = append(in.Cluster.Pools, formats.Pool{
			Device: k, Count: ref.GPUs[k], MaxShares: ref.Shares[k], PerNode: ref.PerNode[k], NICGbps: ref.Gbps,
		})
	}
	for i, d := range ref.DNNs {
		in.Workload.Models = append(in.Workload.Models, formats.WorkloadModel{
			Model: d.Model, SLO: formats.SLO{Duration: micros(d.SLOUS).D()}, Weight: ref.Weights[i], BatchBuildRPS: d.BuildRPS,
		})
	}
	return in
}

func (ref *refPlan) options() Options {
	o := DefaultOptions()
	o.Margin, o.BatchBuild, o.MaxPartitions = ref.Margin, ref.BatchBuild, ref.MaxPartitions
	if ref.Algorithm == "NP" {
		o.Algorithm = AlgorithmNP
	}
	return o
}
