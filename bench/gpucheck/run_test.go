package gpucheck

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"inferplan/engine"
	"inferplan/formats"
	"inferplan/formats/document"
)

// With this variable the test binary is the program whose steps are run: each
// behaves as its name here says.
const asProgram = "INFERPLAN_TEST_GPU_CHECK"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	args := map[string]string{}
	for i := 2; i+1 < len(os.Args); i += 2 {
		args[os.Args[i]] = os.Args[i+1]
	}
	r := StepResult{Step: args["--one"], Status: Passed}
	switch args["--one"] {
	case "outputs": // a fault in a library
		fmt.Fprintln(os.Stderr, "segmentation violation in libcudnn.so.9")
		os.Exit(2)
	case "fallback": // ends without a word
		os.Exit(0)
	case "ceilings": // hangs, and does not listen
		time.Sleep(time.Hour)
	case "profile":
		r.Status, r.Verdicts = Missed, []Verdict{{"seconds", "<= 120", 300, false}}
	case "repeat":
		r.Status, r.Error = Partial, "not all done yet"
	case "promise": // is killed after a part, each time; the third time nothing is left
		if have, err := readKept(args["--out"]); err == nil && have.Step == r.Step {
			r = *have
		}
		n := len(r.Verdicts)
		r.verdict(fmt.Sprintf("load %d: attainment", n), "all", 1, true)
		if r.Status, r.Error = Passed, ""; n < 2 {
			r.Status, r.Error = Partial, errUnderWay.Error()
			if err := r.keep(args["--out"]); err != nil {
				os.Exit(1)
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	if v := os.Getenv("NVIDIA_TF32_OVERRIDE"); v != "" {
		r.Notes = append(r.Notes, "TF32 "+v)
	}
	data, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(keptIn(args["--out"]), data, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func options(t *testing.T, names ...string) Options {
	t.Setenv(asProgram, "1")
	dir := t.TempDir()
	return Options{Self: os.Args[0], Device: "cuda:0", Out: filepath.Join(dir, "out"), Work: filepath.Join(dir, "work"), Steps: names, Log: io.Discard}
}

func stored(t *testing.T, o Options) *Document {
	t.Helper()
	d, err := open(&o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A step that crashes or ends without a word fails alone; what is done is not
// done again, what is not is.
func TestRun(t *testing.T) {
	o := options(t, "doctor", "outputs", "fallback", "profile", "repeat")
	ok, err := Run(context.Background(), o)
	if err != nil || ok {
		t.Fatalf("ok %v, %v", ok, err)
	}
	want := map[string]string{"doctor": Passed, "outputs": Failed, "fallback": Failed, "profile": Missed, "repeat": Partial}
	d := stored(t, o)
	for name, status := range want {
		if s := d.find(name); s == nil || s.Status != status {
			t.Errorf("%s: %+v, want %s", name, s, status)
		}
	}
	if e := d.find("outputs").Error; !strings.Contains(e, "segmentation violation") {
		t.Errorf("the reason of the crash is lost: %q", e)
	}
	if e := d.find("fallback").Error; !strings.Contains(e, "without a result") {
		t.Errorf("an end without a word: %q", e)
	}
	text, err := os.ReadFile(filepath.Join(o.Out, "gpu-check.txt"))
	if err != nil || !strings.Contains(string(text), "MISS seconds: 300, asked <= 120") || !strings.HasPrefix(string(text), "GPU check") {
		t.Errorf("%s, %v", text, err)
	}
	var log bytes.Buffer
	o.Log = &log
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"doctor    passed already", "profile   missed already", "repeat    The same profile again", "outputs   Outputs against"} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("the second call does not say %q:\n%s", line, log.String())
		}
	}
	// The steps stand in their order whatever the order of the calls.
	o.Steps = []string{"swap", "executor"}
	if _, err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range stored(t, o).Steps {
		got = append(got, s.Step)
	}
	if !slices.Equal(got, []string{"doctor", "outputs", "fallback", "profile", "executor", "repeat", "swap"}) {
		t.Errorf("order %v", got)
	}
	// Another device's results are not mixed in.
	o.Device = "cpu"
	if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("a folder of another device: %v", err)
	}
	o.Steps = []string{"no-such"}
	if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "no-such") {
		t.Errorf("an unknown step: %v", err)
	}
}

// A step that hangs is ended with everything that it started.
func TestRunApartEndsWhatHangs(t *testing.T) {
	o := options(t)
	for _, d := range []string{o.Out, o.Work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	i := slices.IndexFunc(steps, func(s step) bool { return s.name == "ceilings" })
	r := runApart(context.Background(), &o, steps[i], 500*time.Millisecond)
	if r.Status != Failed || r.Error == "" {
		t.Errorf("%+v", r)
	}
	// Before any library is opened, TF32 is off where outputs are compared.
	if env := steps[slices.IndexFunc(steps, func(s step) bool { return s.name == "outputs" })].environment(); !slices.Contains(env, "NVIDIA_TF32_OVERRIDE=0") {
		t.Errorf("environment of outputs: %v", env)
	}
}

// A step that is killed in the midst goes on where it was, also where the whole
// call was killed with it.
func TestGoesOn(t *testing.T) {
	o := options(t, "promise")
	if ok, err := Run(context.Background(), o); ok || err != nil {
		t.Fatalf("ok %v, %v", ok, err)
	}
	s := stored(t, o).find("promise")
	if s.Status != Partial || len(s.Verdicts) != 1 || !strings.Contains(s.Error, "killed") {
		t.Fatalf("after a part: %+v", s)
	}
	if _, err := os.Stat(keptIn(o.Out)); !os.IsNotExist(err) {
		t.Errorf("what a step kept stays: %v", err)
	}
	// The call that would have put the second part into the document is killed too.
	i := slices.IndexFunc(steps, func(s step) bool { return s.name == "promise" })
	if err := s.keep(o.Out); err != nil {
		t.Fatal(err)
	}
	second := runApart(context.Background(), &o, steps[i], time.Minute)
	if second.Status != Partial || len(second.Verdicts) != 2 || second.Seconds < s.Seconds {
		t.Fatalf("after two parts: %+v", second)
	}
	if len(stored(t, o).find("promise").Verdicts) != 1 {
		t.Fatal("the document has the second part already")
	}
	o.Mirror = filepath.Join(t.TempDir(), "mirror")
	if ok, err := Run(context.Background(), o); !ok || err != nil {
		t.Fatalf("ok %v, %v", ok, err)
	}
	if s := stored(t, o).find("promise"); s.Status != Passed || len(s.Verdicts) != 3 || s.Error != "" {
		t.Errorf("at the end: %+v", s)
	}
	files, err := os.ReadDir(o.Mirror)
	if err != nil || len(files) != 3 {
		t.Errorf("copied: %v, %v", files, err)
	}
	// Another step does not take what this one kept.
	if err := (&StepResult{Step: "promise", Verdicts: []Verdict{{What: "x"}}}).keep(o.Out); err != nil {
		t.Fatal(err)
	}
	if r := runApart(context.Background(), &o, steps[0], time.Minute); r.Step != steps[0].name || len(r.Verdicts) != 0 || r.Status != Passed {
		t.Errorf("%+v", r)
	}
}

// What does not fit into the call's time is left for the next one.
func TestLimit(t *testing.T) {
	o := options(t, "doctor", "roofline")
	o.Limit = leastTime - time.Second
	ok, err := Run(context.Background(), o)
	if err != nil || ok || len(stored(t, o).Steps) != 0 {
		t.Errorf("ok %v, %v, %+v", ok, err, stored(t, o).Steps)
	}
	o.Limit = time.Hour
	if ok, err := Run(context.Background(), o); err != nil || !ok || len(stored(t, o).Steps) != 2 {
		t.Errorf("ok %v, %v", ok, err)
	}
}

func TestDifference(t *testing.T) {
	nan := float32(math.NaN())
	worst, size, same, rows := difference([][]float32{{1, 2, 3, 1}}, [][]float32{{1, 2.5, 1, 3}}, 2)
	if worst != 2 || size != 3 || same != 1 || rows != 2 {
		t.Errorf("%v %v %d %d", worst, size, same, rows)
	}
	if worst, _, _, _ := difference([][]float32{{1}}, [][]float32{{nan}}, 1); worst < 1e30 {
		t.Errorf("no number differs by %v", worst)
	}
}

func TestDifferences(t *testing.T) {
	profile := func(factor float64) *formats.Profile {
		us := func(x float64) formats.Latency {
			return formats.Latency{WallUS: document.Micros(time.Duration(x * factor * 1000))}
		}
		return &formats.Profile{Models: []formats.ProfileModel{{Model: "m", Blocks: make([]formats.Block, 2), Measurements: []formats.Measurement{
			{Device: "H100", Share: 1, Batch: 1, Blocks: []formats.Latency{us(40), us(100)}},
			{Device: "H100", Share: 1, Batch: 2, Blocks: []formats.Latency{us(80), us(200)}},
		}}}}
	}
	d := differences(profile(1), profile(1.02), 50*time.Microsecond)
	if len(d) != 3 || math.Abs(quantile(d, 0.5)-0.02) > 1e-6 {
		t.Errorf("%v", d)
	}
	if !math.IsNaN(quantile(nil, 0.5)) {
		t.Error("a quantile of nothing")
	}
}

// The model that the fallback step loads is a valid one: the CPU runs it, and
// its determinant is right.
func TestLacking(t *testing.T) {
	sub, err := lacking()
	if err != nil || len(sub.ONNX) == 0 || sub.Outputs[0].Name != "y" {
		t.Fatal(err)
	}
}

// Every step on the CPU, by the program itself: what `gpu-check --device cpu`
// does.
//
//	INFERPLAN_LONG=1 go test ./bench/gpucheck -run TestRehearsal -v -timeout 60m
func TestRehearsal(t *testing.T) {
	if os.Getenv("INFERPLAN_LONG") == "" {
		t.Skip("takes ten minutes and more: set INFERPLAN_LONG=1")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "plan")
	if out, err := exec.Command("go", "build", "-o", program, "..").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(root, "third_party/ort/lib/libonnxruntime.so.1")
	if _, err := os.Stat(lib); err != nil {
		t.Skip("ONNX Runtime is not set up: run `make setup`")
	}
	cmd := exec.Command(program, "gpu-check", "--device", "cpu", "--out", filepath.Join(dir, "out"), "--work", filepath.Join(dir, "work"))
	cmd.Env = append(os.Environ(), "INFERPLAN_ORT_LIB="+lib, "INFERPLAN_MODEL_FILES="+filepath.Join(root, "third_party/models/files"), "INFERPLAN_DIGITS="+filepath.Join(root, "third_party/digits/files"))
	out, _ := cmd.CombinedOutput() // a promise that a busy CPU misses is no failure here
	d := stored(t, Options{Out: filepath.Join(dir, "out"), Device: "cpu"})
	if len(d.Steps) != len(steps) || !d.Rehearsal {
		t.Fatalf("%d steps of %d: %s", len(d.Steps), len(steps), out)
	}
	for _, s := range d.Steps {
		t.Logf("%-9s %s, %.1f s", s.Step, s.Status, s.Seconds)
		if s.Status != Passed && s.Status != Missed {
			t.Errorf("%s: %s: %s", s.Step, s.Status, s.Error)
		}
	}
}

func TestNearest(t *testing.T) {
	all := []float32{1, 0, 0, 1, 0.5, 0.5}
	for k := range 3 {
		if got := nearest([]float32{all[2*k] + 0.01, all[2*k+1]}, all); got != k {
			t.Errorf("row %d: nearest %d", k, got)
		}
	}
	if got := nearest([]float32{float32(math.NaN()), 0}, all); got > 0 {
		t.Errorf("no number is nearest to %d", got)
	}
}

// Results of one kind of GPU are not gone on with on another.
func TestSameGPU(t *testing.T) {
	was := listGPUs
	t.Cleanup(func() { listGPUs = was })
	name := "NVIDIA H100 80GB HBM3"
	listGPUs = func() ([]engine.Device, error) {
		return []engine.Device{{ID: "cuda:0", Name: name, Driver: "580"}}, nil
	}
	o := options(t, "doctor")
	if ok, err := Run(context.Background(), o); !ok || err != nil {
		t.Fatalf("ok %v, %v", ok, err)
	}
	if d := stored(t, o); d.Name != name || d.Driver != "580" {
		t.Errorf("of %q, driver %q", d.Name, d.Driver)
	}
	name = "NVIDIA H200"
	if _, err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), "--out") || !strings.Contains(err.Error(), name) {
		t.Errorf("on another GPU: %v", err)
	}
}

func TestPackageVersions(t *testing.T) {
	site := filepath.Join(t.TempDir(), "site-packages")
	for _, d := range []string{"nvidia/cu13/lib", "nvidia/cudnn/lib", "nvidia_cublas-13.1.0.3.dist-info", "nvidia_cudnn_cu13-9.15.1.9.dist-info", "nvidia_nccl_cu13-2.28.dist-info", "numpy-2.5.2.dist-info"} {
		if err := os.MkdirAll(filepath.Join(site, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	got := packageVersions(strings.Join([]string{"/usr/local/nvidia/lib64", filepath.Join(site, "nvidia/cu13/lib"), filepath.Join(site, "nvidia/cudnn/lib")}, ":"))
	if !slices.Equal(got, []string{"cublas 13.1.0.3", "cudnn 9.15.1.9"}) {
		t.Errorf("%q", got)
	}
}
