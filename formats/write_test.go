package formats

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"inferplan/cputime"
	"inferplan/formats/document"
)

func cluster(count int) *Cluster {
	return &Cluster{Format: FormatCluster, Pools: []Pool{{Device: "L4", Count: count}}}
}

// folder lists what is in a folder: nothing but the files asked for may remain.
func folder(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteFileReplacesOnlyByForce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cluster.json")
	if changed, err := document.WriteFile(path, cluster(1)); err != nil || !changed {
		t.Fatalf("new file: %v, %v", changed, err)
	}
	info, _ := os.Stat(path)
	if changed, err := document.WriteFile(path, cluster(1)); err != nil || changed {
		t.Errorf("same bytes: changed %v, %v", changed, err)
	}
	if after, _ := os.Stat(path); !os.SameFile(info, after) || after.ModTime() != info.ModTime() {
		t.Error("same bytes: the file was touched")
	}
	_, err := document.WriteFile(path, cluster(2))
	if _, ok := errors.AsType[*document.ExistsError](err); !ok || !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "--force") {
		t.Errorf("other bytes: %v", err)
	}
	if c, err := ReadCluster(path); err != nil || c.Pools[0].Count != 1 {
		t.Errorf("the refused write left %+v, %v", c, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := document.WriteFile(path, cluster(2), document.Force(true)); err != nil || !changed {
		t.Errorf("forced: %v, %v", changed, err)
	}
	if c, err := ReadCluster(path); err != nil || c.Pools[0].Count != 2 {
		t.Errorf("forced: %+v, %v", c, err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("forced: mode is now %v", info.Mode())
	}
	if names := folder(t, dir); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

func TestWriteFileWritesNothingInvalid(t *testing.T) {
	dir := t.TempDir()
	for name, doc := range map[string]any{"invalid": cluster(0), "no format": &Cluster{Pools: []Pool{{Device: "L4", Count: 1}}}, "nil report": (*Report)(nil), "nil": nil} {
		if _, err := document.WriteFile(filepath.Join(dir, "x.json"), doc); err == nil {
			t.Errorf("%s: written", name)
		}
	}
	if _, err := document.WriteFile(filepath.Join(dir, "no", "such", "folder.json"), cluster(1)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder gives %v", err)
	}
	if _, err := document.WriteFile(dir, cluster(1)); err == nil {
		t.Error("a folder was replaced")
	}
	if names := folder(t, dir); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestWriteFileFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target.json"), filepath.Join(dir, "link.json")
	if err := os.Symlink("target.json", link); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	for count := 1; count <= 2; count++ { // a dangling link, then one to a file
		if _, err := document.WriteFile(link, cluster(count), document.Force(true)); err != nil {
			t.Fatal(err)
		}
		if c, err := ReadCluster(target); err != nil || c.Pools[0].Count != count {
			t.Errorf("%+v, %v", c, err)
		}
		if info, _ := os.Lstat(link); info.Mode()&fs.ModeSymlink == 0 {
			t.Error("the link was replaced")
		}
	}
}

// Of several writers without force exactly one wins, and readers never see half
// a file.
func TestWriteFileRaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.json")
	var wg sync.WaitGroup
	wins := make([]bool, 8)
	for i := range wins {
		wg.Add(1)
		go func() {
			defer wg.Done()
			changed, err := document.WriteFile(path, cluster(i+1))
			wins[i] = changed && err == nil
			if _, err := ReadCluster(path); err != nil {
				t.Errorf("half a file: %v", err)
			}
		}()
	}
	wg.Wait()
	n := 0
	for _, w := range wins {
		if w {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d writers won, want 1", n)
	}
}

func TestReportFilesHoldNoWallClockRate(t *testing.T) {
	r, err := ReadReport(compat + "report.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	r.EventsPerSecond = 1e6
	var b bytes.Buffer
	if err := document.Write(&b, r); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "events_per_second") || r.EventsPerSecond != 1e6 {
		t.Error("the rate is in the file, or was taken from the caller")
	}
	if data, err := document.Marshal(r); err != nil || !strings.Contains(string(data), "events_per_second") {
		t.Errorf("command output lacks the rate: %v", err)
	}
}

func TestEmptyListsAreNotNull(t *testing.T) {
	data, err := document.Marshal(&Report{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"dropped_by_reason": {}`, `"models": []`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in %s", want, data)
		}
	}
}

func TestDigestIsSHA256(t *testing.T) {
	path := filepath.Join(t.TempDir(), "abc")
	if _, err := document.WriteBytes(path, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	// FIPS 180-2, appendix B.1.
	if d, err := document.Digest(path); err != nil || d != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("%s, %v", d, err)
	}
	if _, err := document.Digest(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
}

// largeProfile is as large as a profile of many models gets: about 10 MB.
func largeProfile(tb testing.TB) []byte {
	tb.Helper()
	p := &Profile{Format: FormatProfile, Devices: []ProfileDevice{{Device: "L4"}}}
	for m := range 40 {
		pm := ProfileModel{Model: fmt.Sprintf("model-%d", m)}
		for b := range 50 {
			pm.Blocks = append(pm.Blocks, Block{Name: fmt.Sprint(b), CutBytesFP32: 1 << 20})
		}
		for batch := 1; batch <= 64; batch++ {
			s := Measurement{Device: "L4", Share: 1, Batch: batch, Blocks: make([]Latency, 50)}
			for b := range s.Blocks {
				s.Blocks[b] = Latency{WallUS: document.Micros(1000*b + batch + 1), P99US: document.Micros(2000*b + batch + 1), HalfWidthUS: 125, Samples: 40}
			}
			pm.Measurements = append(pm.Measurements, s)
		}
		p.Models = append(p.Models, pm)
	}
	data, err := marshalValid(p)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestLargeProfilesReadFast(t *testing.T) {
	data := largeProfile(t)
	if len(data) < 8<<20 {
		t.Fatalf("only %d bytes", len(data))
	}
	start := cputime.Used()
	if _, err := DecodeProfile(data, "profile.json"); err != nil {
		t.Fatal(err)
	}
	// About 0.4 s; the bound leaves room for the race detector and a machine whose
	// caches others use, and still catches what is not linear.
	if d := cputime.Used() - start; d > 10*time.Second {
		t.Errorf("%d bytes took %v of CPU", len(data), d)
	}
}

func BenchmarkDecodeProfile(b *testing.B) {
	data := largeProfile(b)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeProfile(data, "profile.json"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMarshalProfile(b *testing.B) {
	p, err := DecodeProfile(largeProfile(b), "profile.json")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := document.Marshal(p); err != nil {
			b.Fatal(err)
		}
	}
}

// A pipe's content is gone once it was read: there is no digest of it.
func TestDigestOfAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w.Close()
	if d, err := document.Digest(fmt.Sprintf("/dev/fd/%d", r.Fd())); err == nil || !strings.Contains(err.Error(), "found a pipe") {
		t.Errorf("%q, %v", d, err)
	}
}
