package profiler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/formats"
)

// Several runs measure into one file at the same time: other models, and other
// batches of the same model. Nobody's numbers are lost.
func TestRunsAtOnceKeepEachOthersNumbers(t *testing.T) {
	out := filepath.Join(t.TempDir(), "profile.json")
	type ask struct {
		model string
		batch int
	}
	asks := []ask{{"m1", 1}, {"m2", 1}, {"m3", 2}, {"same", 1}, {"same", 2}, {"same", 4}}
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for _, a := range asks {
		wg.Go(func() {
			eng := newFakeEngine(uniformModel(a.model, 6, 100*time.Microsecond))
			o := eng.options(a.model)
			o.Blocks, o.Batches, o.Precision, o.FP16Samples, o.OutPath = 3, []int{a.batch}, quickRule, -1, out
			// All have read the file before one of them writes it.
			o.OnEstimate = func(Estimate) error { <-begin; return nil }
			if _, err := Run(context.Background(), o); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	close(begin)
	wg.Wait()
	p, err := formats.ReadProfile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range asks {
		i := slices.IndexFunc(p.Models, func(m formats.ProfileModel) bool { return m.Model == a.model })
		if i < 0 || p.Models[i].FindMeasurement("cpu-1", 1, a.batch) == nil {
			t.Errorf("%s at batch %d is lost", a.model, a.batch)
		}
	}
	if len(p.Models) != 4 || len(p.Devices) != 1 {
		t.Errorf("%d models, %d devices", len(p.Models), len(p.Devices))
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(out), ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// What was dropped on purpose does not come back from the file of another.
func TestMergeLeavesOutWhatWasReplaced(t *testing.T) {
	out := filepath.Join(t.TempDir(), "profile.json")
	run := func(version string, batches []int, meanwhile func()) *formats.Profile {
		eng := newFakeEngine(uniformModel("net", 6, 100*time.Microsecond))
		eng.version = version
		o := eng.options("net")
		o.Blocks, o.Batches, o.FP16Samples, o.OutPath = 3, batches, -1, out
		o.OnEstimate = func(Estimate) error {
			if meanwhile != nil {
				meanwhile()
			}
			return nil
		}
		return mustRun(t, o)
	}
	run("1", []int{1, 2}, nil)
	run("2", []int{1}, func() {
		if _, err := Update(out, nil, func(p *formats.Profile) error {
			p.Notes = append(p.Notes, "a note of another process")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
	p, err := formats.ReadProfile(out)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(p.Models[0].Measurements); n != 1 {
		t.Errorf("%d measurements, those of the old engine among them", n)
	}
	if !slices.Contains(p.Notes, "a note of another process") {
		t.Errorf("notes %q", p.Notes)
	}
}

func TestAFolderThatCannotBeLocked(t *testing.T) {
	if _, err := lockFile(filepath.Join(t.TempDir(), "no", "profile.json")); err == nil {
		t.Error("a folder that is not there is locked")
	}
	if _, err := Update(filepath.Join(t.TempDir(), "profile.json"), nil, nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a profile that is not there: %v", err)
	}
}

// On a busy machine the whole model, which runs for long, waits for the
// processor, and its short blocks do not. That is seen, measured again, and said
// where it stays.
func TestABusyMachineIsSeenAndSaid(t *testing.T) {
	for _, c := range []struct {
		name string
		busy time.Duration // from the start
		want float64       // microseconds of the whole
		said bool
	}{
		{"quiet", 0, 600, false},
		{"busy for a while", 40 * time.Millisecond, 600, false},
		{"busy to the end", time.Hour, 1500, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			eng := newFakeEngine(uniformModel("net", 6, 100*time.Microsecond))
			begun := eng.clock.now()
			eng.wait = func(atoms int) float64 {
				if atoms == 6 && eng.clock.now().Sub(begun) < c.busy {
					return 2.5
				}
				return 1
			}
			o := eng.options("net")
			o.Blocks, o.Batches, o.FP16Samples, o.OutPath = 3, []int{1}, -1, filepath.Join(t.TempDir(), "profile.json")
			var said []string
			o.Progress = func(e Event) {
				if e.Stage == StageWarning {
					said = append(said, e.Text)
				}
			}
			p := mustRun(t, o)
			if got := float64(p.Models[0].Measurements[0].WholeModel.WallUS) / 1e3; got != c.want {
				t.Errorf("the whole takes %v us, want %v", got, c.want)
			}
			const want = "2.6 times its own CPU time"
			if got := fmt.Sprint(said); strings.Contains(got, want) != c.said {
				t.Errorf("warnings %v", got)
			}
			if got := fmt.Sprint(p.Notes); strings.Contains(got, want) != c.said {
				t.Errorf("notes %v", got)
			}
			if _, err := os.Stat(o.OutPath); err != nil {
				t.Error(err)
			}
		})
	}
}
