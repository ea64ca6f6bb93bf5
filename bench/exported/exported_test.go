package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inferplan/engine/ort"
)

// A part of the table that needs nothing but what set-up fetches: an exported model with free
// height and width goes from its file to answers that are ONNX Runtime's.
func TestClassifierIsAnswered(t *testing.T) {
	b := &bench{plan: filepath.Join(t.TempDir(), "plan"), third: "../../third_party", budget: time.Second}
	if out, err := exec.Command("go", "build", "-o", b.plan, "inferplan/cmd/plan").CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	eng, err := ort.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	for i := range cases {
		c := &cases[i]
		if !strings.HasSuffix(c.file, "cls_infer.onnx") {
			continue
		}
		x, err := b.take(t.Context(), eng, c)
		if err != nil || !x.right {
			t.Errorf("%v; %+v", err, x)
		}
		return
	}
	t.Error("no such case")
}
