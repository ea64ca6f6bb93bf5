package gpucheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"inferplan/engine"
	"inferplan/engine/ort"
	"inferplan/profiler"
)

// doctor asks the program what it finds.
func doctor(ctx context.Context, c *check, r *StepResult) error {
	text, err := c.plan(ctx, "doctor", "--json")
	var found []struct{ What, State, Found string }
	if jerr := json.Unmarshal([]byte(text), &found); jerr != nil {
		return errors.Join(err, jerr)
	}
	t := Table{Header: []string{"what", "state", "found"}}
	for _, f := range found {
		t.Rows = append(t.Rows, []string{f.What, f.State, f.Found})
	}
	r.Tables = append(r.Tables, t)
	if v := packageVersions(os.Getenv("LD_LIBRARY_PATH")); len(v) > 0 {
		r.note("CUDA's libraries: %s", strings.Join(v, ", "))
	}
	missing := slices.ContainsFunc(found, func(f struct{ What, State, Found string }) bool { return f.State == "missing" })
	r.verdict("things missing", "none", float64(count(missing)), !missing)
	if c.rehearsal() {
		return nil
	}
	i, err := c.dev.Index()
	if err != nil {
		return err
	}
	d, err := ort.AboutGPU(i)
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, Table{Header: []string{"GPU", "driver", "CUDA", "architecture", "multiprocessors", "memory GiB", "free GiB"}, Rows: [][]string{{
		c.dev.Name, c.dev.Driver, d.CUDA, d.Architecture, fmt.Sprint(d.Multiprocessors),
		fmt.Sprintf("%.1f", float64(d.TotalBytes)/(1<<30)), fmt.Sprintf("%.1f", float64(d.FreeBytes)/(1<<30)),
	}}})
	return nil
}

// packageVersions names the Python packages that CUDA's libraries on a path are of.
func packageVersions(path string) []string {
	var out []string
	for _, dir := range filepath.SplitList(path) {
		site, _, ok := strings.Cut(dir, "/nvidia/")
		if !ok {
			continue
		}
		found, _ := filepath.Glob(filepath.Join(site, "nvidia_*.dist-info")) // the pattern is well formed
		for _, f := range found {
			name, version, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "nvidia_"), ".dist-info"), "-")
			switch name, _, _ = strings.Cut(name, "_cu1"); name {
			case "cublas", "cudnn", "cuda_runtime", "curand", "cufft", "cuda_nvrtc":
				if text := name + " " + version; ok && !slices.Contains(out, text) {
					out = append(out, text)
				}
			}
		}
	}
	return out
}

// ceilings measures what the device reaches at best.
func ceilings(ctx context.Context, c *check, r *StepResult) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !c.rehearsal() {
		i, err := c.dev.Index()
		if err != nil {
			return err
		}
		t := Table{Title: "copies, 1e9 bytes a second (inside the device: read plus written)", Header: []string{"MiB", "to device pinned", "to host pinned", "to device paged", "to host paged", "inside"}}
		for _, size := range []int{1 << 20, 16 << 20, 256 << 20} {
			x, err := ort.MeasureCopies(i, size, 20)
			if err != nil {
				return err
			}
			g := func(v float64) string { return fmt.Sprintf("%.1f", v/1e9) }
			t.Rows = append(t.Rows, []string{fmt.Sprint(size >> 20), g(x.ToDevice), g(x.ToHost), g(x.ToDevicePaged), g(x.FromPaged), g(2 * x.InDevice)})
		}
		r.Tables = append(r.Tables, t)
	} else {
		r.Tables = append(r.Tables, Table{Header: []string{"copy, 1e9 bytes a second read plus written"}, Rows: [][]string{{fmt.Sprintf("%.1f", profiler.HostCopyGBps())}}})
	}
	t := Table{Title: "float32 matrix product", Header: []string{"TF32", "Tflop/s"}}
	modes := map[string]engine.Options{"-": {}}
	if !c.rehearsal() {
		modes = map[string]engine.Options{"on": {}, "off": {Provider: map[string]string{"use_tf32": "0"}}}
	}
	for _, name := range slices.Sorted(mapsKeys(modes)) {
		rate, err := profiler.MatmulRate(ctx, c.eng, c.dev, modes[name])
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, []string{name, fmt.Sprintf("%.3f", rate/1e12)})
	}
	r.Tables = append(r.Tables, t)
	return nil
}

// swap measures what it costs to bring a model onto the device and to take it
// off.
func swap(ctx context.Context, c *check, r *StepResult) error {
	names := cnns
	if c.Quick {
		names = []string{"squeezenet"}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	free := func() int64 {
		if i, err := c.dev.Index(); err == nil && !c.rehearsal() {
			if d, err := ort.AboutGPU(i); err == nil {
				return d.FreeBytes
			}
		}
		return 0
	}
	const title = "milliseconds at batch 8: cold loads the whole model, again loads it a second time in the same process"
	for _, name := range names {
		t := r.table(title, "model", "load", "first run", "second run", "unload", "load again", "first run again", "weights MB", "device memory MB")
		if slices.ContainsFunc(t.Rows, func(row []string) bool { return row[0] == name }) {
			continue
		}
		_, sub, err := c.model(ctx, name)
		if err != nil {
			return err
		}
		row := []string{name}
		ms := func(d time.Duration) { row = append(row, fmt.Sprintf("%.1f", d.Seconds()*1e3)) }
		used := int64(0)
		for turn := range 2 {
			before := free()
			s := *sub
			begin := time.Now()
			blk, err := c.eng.Load(ctx, &s, c.dev, engine.Options{})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			ms(time.Since(begin))
			b, err := blk.Bind(engine.BindOptions{Batch: 8})
			if err != nil {
				blk.Close()
				return err
			}
			runs := 2 - turn
			for range runs {
				x, err := b.RunN(1)
				if err != nil {
					blk.Close()
					return err
				}
				ms(x.Wall)
			}
			if turn == 0 {
				used = before - free()
			}
			begin = time.Now()
			if err := blk.Close(); err != nil {
				return err
			}
			if turn == 0 {
				ms(time.Since(begin))
			}
		}
		row = append(row, fmt.Sprintf("%.0f", float64(sub.WeightBytes)/1e6), fmt.Sprintf("%.0f", float64(used)/1e6))
		t.Rows = append(t.Rows, row)
		if err := errors.Join(c.keep(r), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}
