package arrivals_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inferplan/formats/arrivals"
	"inferplan/formats/document"
)

func TestTraceReadsWhatItWrites(t *testing.T) {
	models := []string{"resnet50", "bert,base"}
	want := []arrivals.Request{
		{ArrivedAt: 0, ID: "a", Class: "gold"},
		{ArrivedAt: 1500 * time.Nanosecond, Model: 1, ID: "b", PromptTokens: 374, OutputTokens: 44, SLO: 200 * time.Millisecond},
		{ArrivedAt: 1500 * time.Nanosecond, ID: "c \"quoted\"", SLO: 1},
		{ArrivedAt: time.Hour, Model: 1, ID: "d", Class: "gold"},
	}
	for _, name := range []string{"trace.csv", "trace.csv.gz"} {
		path := filepath.Join(t.TempDir(), name)
		n, changed, err := arrivals.WriteTraceFile(path, arrivals.Slice(want), models, []string{"id", "model", "class", "prompt_tokens", "output_tokens", "slo_us"})
		if err != nil || n != 4 || !changed {
			t.Fatalf("%d requests, changed %v, %v", n, changed, err)
		}
		src, err := arrivals.OpenTrace(path, models)
		if err != nil {
			t.Fatal(err)
		}
		got, err := arrivals.Collect(src, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %+v", name, got)
		}
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTraceColumnsOfOthers(t *testing.T) {
	src, err := arrivals.NewTrace(strings.NewReader("t_s,input_tokens,output_tokens,hit\n0.0000,374,44,1\n4.3146,396,109,2\n"), "azure.csv", []string{"llm"}, arrivals.IgnoreOther())
	if err != nil {
		t.Fatal(err)
	}
	got, err := arrivals.Collect(src, 0)
	want := []arrivals.Request{{PromptTokens: 374, OutputTokens: 44}, {ArrivedAt: 4314600 * time.Microsecond, PromptTokens: 396, OutputTokens: 109}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestTraceErrorsNameTheLine(t *testing.T) {
	two := []string{"resnet50", "bert"}
	for _, c := range []struct {
		name, text string
		models     []string
		want       string
	}{
		{"empty", "", two[:1], "f.csv: found an empty file, expected a header line"},
		{"no time", "id\nx\n", two[:1], "f.csv:1:1: found no column t_us"},
		{"typo", "t_us,modell\n", two, "f.csv:1:6: found the column \"modell\", expected the columns t_us, id, model, class, prompt_tokens, output_tokens, slo_us, client\n  hint: did you mean model?"},
		{"both times", "t_us,t_s\n", two[:1], "f.csv:1:6: found the column \"t_s\" beside \"t_us\""},
		{"twice", "t_us,id,id\n", two[:1], "f.csv:1:9: found the column name \"id\""},
		{"no model", "t_us\n0\n", two, "expected one, because there are several models: resnet50, bert"},
		{"unknown model", "t_us,model\n1,bert\n2,resnet5\n", two, "f.csv:3:3: model: found the text \"resnet5\", expected one of resnet50, bert\n  hint: did you mean resnet50?"},
		{"back in time", "t_us\n5\n4.999\n", two[:1], "f.csv:3:1: t_us: found the text \"4.999\", expected a time that is not before"},
		{"negative", "t_us\n-1\n", two[:1], "f.csv:2:1: t_us: found the text \"-1\", expected a number of microseconds"},
		{"too precise", "t_us\n0.0001\n", two[:1], "at most three decimals"},
		{"no number", "t_us\n1\nNaN\n", two[:1], "f.csv:3:1: t_us: found the text \"NaN\""},
		{"columns", "t_us,id\n1,a\n2\n", two[:1], "f.csv:3:1: found another number of columns, expected 2, as in the header: t_us,id"},
		{"quote", "t_us,id\n1,\"a\n", two[:1], "f.csv:2:"},
		{"tokens", "t_us,prompt_tokens\n1,1.5\n", two[:1], "f.csv:2:3: prompt_tokens: found the text \"1.5\", expected a whole number of tokens"},
		{"slo", "t_us,slo_us\n1,-3\n", two[:1], "f.csv:2:3: slo_us:"},
		{"broken gzip", "\x1f\x8bxx", two[:1], "f.csv: a gzip file that cannot be unpacked"},
		{"long line", "t_us,id\n1," + strings.Repeat("x", 2<<20), two[:1], "f.csv:2:1: found a line of more than 1MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, err := arrivals.NewTrace(strings.NewReader(c.text), "f.csv", c.models)
			if err == nil {
				_, err = arrivals.Collect(src, 0)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v\nwant %s", err, c.want)
			}
			if _, ok := errors.AsType[*document.Error](err); !ok {
				t.Errorf("%T is no *document.Error", err)
			}
		})
	}
}

func TestGapsAreReadAsArrivals(t *testing.T) {
	g, err := arrivals.NewGaps(strings.NewReader("0\n830\r\n3730\n"), "g.txt", 2)
	if err != nil {
		t.Fatal(err)
	}
	got, err := arrivals.Collect(g, 0)
	want := []arrivals.Request{{Model: 2}, {Model: 2, ArrivedAt: 830 * time.Microsecond}, {Model: 2, ArrivedAt: 4560 * time.Microsecond}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"1\n-2\n", "1\n2.5\n", "1\n9223372036854775807\n", "1\nx\n", "1\n" + strings.Repeat("1", 5000)} {
		g, err := arrivals.NewGaps(strings.NewReader(bad), "g.txt", 0)
		if err == nil {
			_, err = arrivals.Collect(g, 0)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "g.txt:2:1: ") {
			t.Errorf("%.20q: got %v", bad, err)
		}
	}
	if _, err := arrivals.OpenGaps(filepath.Join(t.TempDir(), "none"), 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
}

func pack(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What the reader accepts, the writer writes so that it reads the same.
func FuzzTrace(f *testing.F) {
	models := []string{"a", "b"}
	f.Add([]byte("t_us,model,id\n0,a,x\n1.5,b,\"y,z\"\n"))
	f.Add([]byte("t_s,model,input_tokens,output_tokens,slo_us,class\n0.5,a,1,2,,gold\n"))
	f.Add([]byte("t_us,model\r\n1e3,a\r\n"))
	f.Add(pack(f, "t_us,model\n1,a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 || bytes.HasPrefix(data, []byte{0x1f, 0x8b}) && len(data) > 1<<10 {
			return // packed zeros would only test patience
		}
		src, err := arrivals.NewTrace(bytes.NewReader(data), "f", models)
		if err != nil {
			return
		}
		want, err := arrivals.Collect(src, 10000)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if _, err := arrivals.WriteTrace(&b, arrivals.Slice(want), models, "id", "model", "class", "prompt_tokens", "output_tokens", "slo_us"); err != nil {
			t.Fatal(err)
		}
		again, err := arrivals.NewTrace(bytes.NewReader(b.Bytes()), "g", models)
		if err != nil {
			t.Fatal(err)
		}
		got, err := arrivals.Collect(again, 0)
		if err != nil {
			t.Fatalf("%v\n%s", err, b.Bytes())
		}
		if !slices.Equal(got, want) {
			t.Fatalf("wrote %+v, read %+v", want, got)
		}
	})
}

func FuzzGaps(f *testing.F) {
	f.Add([]byte("0\n830\n3730\n"))
	f.Add([]byte("9223372036854775\n9223372036854775\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := arrivals.NewGaps(bytes.NewReader(data), "g", 0)
		if err != nil {
			return
		}
		rs, _ := arrivals.Collect(g, 10000)
		for i := range rs {
			if rs[i].ArrivedAt < 0 || i > 0 && rs[i].ArrivedAt < rs[i-1].ArrivedAt {
				t.Fatalf("request %d at %d", i, rs[i].ArrivedAt)
			}
		}
	})
}

// The trace of version 1 is read for ever.
func TestOldTraceIsRead(t *testing.T) {
	src, err := arrivals.OpenTrace("../../testdata/compat/trace.v1.csv", []string{"encnet", "tiny"})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	got, err := arrivals.Collect(src, 0)
	want := []arrivals.Request{
		{ID: "a", Class: "gold"},
		{ArrivedAt: 1500125 * time.Nanosecond, Model: 1, ID: "b", PromptTokens: 374, OutputTokens: 44, SLO: 200 * time.Millisecond},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}
