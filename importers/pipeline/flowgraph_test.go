package pipeline_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inferplan/formats"
	"inferplan/importers/pipeline"
)

func TestReadOrdersModulesByDependency(t *testing.T) {
	const diamond = `[{"name":"pose","id":2,"pres":[0],"subs":[3]},{"name":"yolo","id":0,"pres":[],"subs":[1,2]},
 {"name":"face","id":1,"pres":[0],"subs":[3]},{"name":"face","id":3,"pres":[1,2],"subs":[]}]`
	got, err := pipeline.Read(strings.NewReader(diamond), "da.json")
	if err != nil {
		t.Fatal(err)
	}
	want := []formats.Module{{Name: "yolo", Model: "yolo"}, {Name: "pose", Model: "pose", Predecessors: []string{"yolo"}},
		{Name: "face-1", Model: "face", Predecessors: []string{"yolo"}}, {Name: "face-3", Model: "face", Predecessors: []string{"face-1", "pose"}}}
	if diff := cmp.Diff(want, got.Modules); diff != "" {
		t.Error(diff)
	}
	got.Name = "da"
	if err := pipeline.Workload(got).Validate(); err != nil {
		t.Error(err)
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	for text, want := range map[string]string{
		`[`:  "p.json:1:2: found the end of the file",
		`[]`: "0 modules",
		`[{"name":"a","id":0,"subs":[1]},{"name":"b","id":1}]`: "[0].subs[0]: found 1, expected the id of a module whose pres have 0",
		`[{"name":"a","id":0},{"name":"b","id":1,"pres":[0]}]`: "[1].pres[0]: found 0, expected the id of a module whose subs have 1",
		`[{"name":"a","id":0},{"name":"b","id":0}]`:            "[1].id: found 0 a second time",
		`[{"name":"a","id":0},{"name":"b","id":1}]`:            "one module where requests enter",
		`[{"name":"a"}]`:          "[0].id: found nothing",
		`[{"id":1}]`:              "[0].name: found nothing",
		`[{"name":"a","id":"x"}]`: "p.json:1:19: [0].id: found the text \"x\", expected a whole number",
	} {
		if _, err := pipeline.Read(strings.NewReader(text), "p.json"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`[{"name":"a","id":0,"subs":[1]},{"name":"b","id":1,"pres":[0]}]`)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := pipeline.Read(strings.NewReader(text), "f.json")
		if err != nil {
			return
		}
		a.Name = "a"
		if err := pipeline.Workload(a).Validate(); err != nil && !strings.Contains(err.Error(), "modules") {
			t.Errorf("%q: %v", text, err)
		}
	})
}
