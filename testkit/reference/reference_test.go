package reference

import (
	"strings"
	"testing"

	"inferplan/formats"
)

const good = `[
{"case":"a/b","family":"a","group":"G","cluster":"C","gpus":{"T4":2,"L4":1},"bw_gbps":10,"slo_multiplier":5,"weights":[1],"algorithm":"PPipe","empty":false,
 "mps_levels":{"L4":2,"T4":1},"gpus_per_server":{"L4":1,"T4":2},"max_partitions":2,"slo_margin_fraction":0.4,"batch_build_factor":1.3,
 "objective_min_weighted_rps":100,"total_rps":100,"milp_gap":0.0,"milp_solve_s":0.1,
 "dnns":[{"model":"m","slo_us":50000.5,"slo_margin_us":20000,"est_rps_for_batch_building":90,"rps":100,
  "pipelines":[{"rps":100,"batch_build_est_us":0,"partitions":[
   {"blocks":[0,2],"gpu":"T4","vgpu_denominator":1,"batch":1,"num_physical_gpus":2.0,"num_vgpus":2,"infer_us":20000,"transfer_us":5,"rps":100},
   {"blocks":[2,3],"gpu":"L4","vgpu_denominator":2,"batch":1,"num_physical_gpus":0.5,"num_vgpus":1,"infer_us":9000,"transfer_us":0,"rps":null}]}]}]}
]`

func TestRead(t *testing.T) {
	plans, err := Read(strings.NewReader(good), "p.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Find(plans, "p.json", "a/b", "ppipe")
	if err != nil {
		t.Fatal(err)
	}
	c, w := p.ClusterDocument(), p.WorkloadDocument()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if err := w.Validate(); err != nil {
		t.Error(err)
	}
	if c.Pools[0].Device != "L4" || c.Pools[0].MaxShares != 2 || c.Pools[1].PerNode != 2 || c.Pools[1].NICGbps != 10 {
		t.Errorf("cluster %+v", c.Pools)
	}
	if m := formats.ModelsOf(w)[0]; m.SLO.Duration.Nanoseconds() != 50000500 || m.BatchBuildRPS != 90 {
		t.Errorf("workload %+v", m)
	}
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		want     []string
	}{
		"no list":       {"[\n", "{\n", []string{"p.json:2:1", "list"}},
		"cut off":       {"\n]", "", []string{"p.json", "]"}},
		"more":          {"\n]", "\n] 1", []string{"p.json:9:3", "more text after the document"}},
		"unknown field": {`"group"`, `"grope"`, []string{"p.json", "grope"}},
		"type":          {`"bw_gbps":10`, `"bw_gbps":"10"`, []string{"p.json:2:87: [0].bw_gbps: found the text", "a number", "take the quotes off"}},
		"weights":       {`"weights":[1]`, `"weights":[1,2]`, []string{"[0].weights", "2 weights", "1, one per DNN"}},
		"kind":          {`"gpu":"T4"`, `"gpu":"H100"`, []string{"partitions[0].gpu", "H100", "L4, T4"}},
		"share":         {`"vgpu_denominator":2`, `"vgpu_denominator":3`, []string{"partitions[1].vgpu_denominator", "3", "1 to 2"}},
		"batch":         {`"vgpu_denominator":2,"batch":1`, `"vgpu_denominator":2,"batch":2`, []string{"partitions[1].batch", "one batch size"}},
		"SLO":           {`"slo_us":50000.5`, `"slo_us":0`, []string{"dnns[0].slo_us", "more than 0"}},
		"replicas":      {`"num_vgpus":2`, `"num_vgpus":0`, []string{"num_vgpus", "1 or more"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(good, c.old, c.new, 1)
			if text == good {
				t.Fatalf("%q is not in the text", c.old)
			}
			_, err := Read(strings.NewReader(text), "p.json")
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}
	plans, err := Read(strings.NewReader(good), "p.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Find(plans, "p.json", "a/c", "PPipe"); err == nil || !strings.Contains(err.Error(), "did you mean a/b?") {
		t.Errorf("a case that is not there: %v", err)
	}
	if _, err := Find(plans, "p.json", "a/b", "NP"); err == nil || !strings.Contains(err.Error(), "PPipe") {
		t.Errorf("an algorithm that is not there: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(good)
	f.Add(`[]`)
	f.Add(`[{"case":"a","algorithm":"NP","max_partitions":1}]`)
	f.Fuzz(func(t *testing.T, text string) {
		plans, err := Read(strings.NewReader(text), "f.json")
		if err != nil {
			return
		}
		for i := range plans {
			if c := plans[i].ClusterDocument(); len(c.Pools) != len(plans[i].GPUs) {
				t.Fatal("a cluster without some of its pools")
			}
			if w := plans[i].WorkloadDocument(); len(formats.ModelsOf(w)) != len(plans[i].DNNs) {
				t.Fatal("a workload without some of its models")
			}
		}
	})
}
