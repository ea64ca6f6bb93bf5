package triton

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inferplan/engine"
	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/triton"
	importer "inferplan/importers/triton"
)

// drawnPlan is a random plan of pools: models, some in classes, whole or in stages, on shares of devices, on hosts of
// several kinds.
type drawnPlan struct {
	*rapid.T
	plan *formats.Plan
	free map[string][]int // parts of each device that are free, of 12
}

func drawPlan(t *rapid.T) *formats.Plan {
	d := &drawnPlan{t, &formats.Plan{Kind: formats.PlanPool, Section: &formats.PoolPlan{}}, map[string][]int{}}
	for _, device := range []string{"L4", "T4", "V100", "cpu-2"}[rapid.IntRange(0, 2).Draw(t, "first kind"):] {
		p := formats.Pool{Device: device, Count: rapid.IntRange(1, 5).Draw(t, "count"), PerNode: rapid.IntRange(1, 3).Draw(t, "per node")}
		if rapid.Bool().Draw(t, "network") {
			p.NICGbps = 10
		}
		if rapid.IntRange(0, 3).Draw(t, "sharing") == 0 {
			p.Sharing = formats.SharingTime
		}
		d.plan.Pools = append(d.plan.Pools, p)
		d.free[device] = slices.Repeat([]int{12}, p.Count)
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "models") {
		m := formats.Deployed{Model: fmt.Sprintf("m%d", i), NumBlocks: 6}
		if rapid.Bool().Draw(t, "class") {
			m.Class = "fast"
		}
		for k := range rapid.IntRange(1, 3).Draw(t, "pipelines") {
			if p := d.pipeline(1 + k); p != nil {
				m.Pipelines = append(m.Pipelines, *p)
			}
		}
		d.plan.Deployment = append(d.plan.Deployment, m)
	}
	return d.plan
}

// pipeline draws a pipeline of up to three stages on different kinds, or returns nil if there is no place for it.
func (d *drawnPlan) pipeline(batch int) *formats.Pipeline {
	pools := rapid.Permutation(d.plan.Pools).Draw(d.T, "kinds")
	ends := slices.Repeat([]int{6}, 1)
	if n := min(len(pools), rapid.IntRange(1, 3).Draw(d.T, "stages")); n > 1 {
		ends = append(rapid.SampledFrom([][]int{{2}, {1, 4}}[n-2:n-1]).Draw(d.T, "cuts"), 6)
	}
	p, first := &formats.Pipeline{Batch: batch, RPS: 10}, 0
	for i, end := range ends {
		s := d.stage(&pools[i], first, end, batch)
		if s == nil {
			return nil
		}
		if i < len(ends)-1 {
			s.Cut = &formats.Cut{DType: "FP32"}
		}
		p.Stages, first = append(p.Stages, *s), end
	}
	return p
}

// stage draws a stage on devices with free parts: on all of a pool whose stages take turns.
func (d *drawnPlan) stage(pool *formats.Pool, first, end, batch int) *formats.Stage {
	if pool.TimeShared() {
		s := stage(first, end, pool.Device, 1, batch, formats.Placement{PerDevice: 1, Replicas: pool.Count})
		return &s
	}
	share := rapid.IntRange(1, 4).Draw(d.T, "share")
	var placement []formats.Placement
	for n, free := range d.free[pool.Device] {
		if room := free * share / 12; room > 0 && rapid.Bool().Draw(d.T, "used") {
			replicas := rapid.IntRange(1, room).Draw(d.T, "replicas")
			placement = append(placement, formats.Placement{FirstDevice: n, PerDevice: replicas, Replicas: replicas})
			d.free[pool.Device][n] -= replicas * 12 / share
		}
	}
	if placement == nil {
		return nil
	}
	s := stage(first, end, pool.Device, share, batch, placement...)
	return &s
}

// placesOf returns what a deployment says of places, batches and stages, one line for each pipeline, sorted.
func placesOf(deployment []formats.Deployed) (lines []string) {
	for i := range deployment {
		d := &deployment[i]
		for _, p := range d.Pipelines {
			line := fmt.Sprintf("%s batch %d:", d.Key(), p.Batch)
			for _, s := range p.Stages {
				if len(p.Stages) == 1 {
					s.Blocks = [2]int{}
				}
				line += fmt.Sprintf(" %v on 1/%d of %s %v", s.Blocks, s.Share, s.Device, replicasByDevice(&s))
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// What runs after an export is what the plan says: places, shares, batch sizes and stages come back.
func TestExportAndImportAgain(t *testing.T) {
	models := t.TempDir()
	for i := range 3 {
		if err := os.WriteFile(filepath.Join(models, fmt.Sprintf("m%d.onnx", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		plan := drawPlan(t)
		isPool := rapid.Bool().Draw(t, "pool")
		if !isPool {
			plan.Section = &formats.GearPlan{}
		}
		cluster := &formats.Cluster{Pools: plan.Pools}
		if rapid.Bool().Draw(t, "shared") {
			cluster.Host = formats.HostShared
		}
		x := &exporter{plan: plan, isPool: isPool, hosts: triton.Hosts(plan.Pools, cluster.Host == formats.HostShared)}
		var err error
		if x.variants, err = deployedVariants(plan, models); err != nil {
			t.Fatal(err)
		}
		for _, v := range x.variants {
			for k := range v.parts {
				v.parts[k].inputs = []engine.Spec{{Name: fmt.Sprint("cut", k), Type: engine.F32, Shape: []int64{-1, 4}}}
				v.parts[k].outputs = []engine.Spec{{Name: fmt.Sprint("cut", k+1), Type: engine.F32, Shape: []int64{-1, 4}}}
			}
		}
		dir, err := os.MkdirTemp("", "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		written := 0
		for i := range x.hosts {
			for _, m := range x.repository(&x.hosts[i]) {
				text, err := triton.FormatConfig(m.config)
				if err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, x.hosts[i].Name, m.config.Name, triton.ConfigName)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				written++
			}
		}
		if written == 0 {
			t.Skip("nothing found a place")
		}

		profile := &formats.Profile{Models: document.Map(plan.Deployment, func(d *formats.Deployed) formats.ProfileModel {
			return formats.ProfileModel{Model: d.Model, Blocks: make([]formats.Block, 6)}
		})}
		observed, notes, err := importer.Read(dir, profile, cluster)
		if err != nil {
			t.Fatal(err)
		}
		if difference := cmp.Diff(placesOf(plan.Deployment), placesOf(observed)); difference != "" || len(notes) > 0 {
			t.Fatalf("%s\nnotes: %s", difference, strings.Join(notes, "\n"))
		}
	})
}
