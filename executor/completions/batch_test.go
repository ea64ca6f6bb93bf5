package completions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// uploaded uploads lines and returns the id of the file.
func (r *rig) uploaded(lines string) string {
	r.t.Helper()
	resp, text := r.upload("batch", lines)
	var f file
	if resp.StatusCode != 200 || json.Unmarshal([]byte(text), &f) != nil || f.Bytes != int64(len(lines)) || f.Status != "processed" {
		r.t.Fatalf("upload: %d %s", resp.StatusCode, text)
	}
	return f.ID
}

func (r *rig) upload(purpose, lines string) (*http.Response, string) {
	r.t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	w.WriteField("purpose", purpose)
	part, err := w.CreateFormFile("file", "in.jsonl")
	if err != nil {
		r.t.Fatal(err)
	}
	part.Write([]byte(lines))
	w.Close()
	return r.do("POST", "/v1/files", body.String(), "Content-Type", w.FormDataContentType())
}

// line is a line of a batch with the text of its answer.
func line(i, tokens int) (text, want string) {
	body, want := prompt(fmt.Sprint("line ", i), tokens, "")
	return fmt.Sprintf(`{"custom_id":"c%d","method":"POST","url":"/v1/completions","body":%s}`+"\n", i, body), want
}

func batchBody(file, window string) string {
	return fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/completions","completion_window":%q,"metadata":{"who":"test"}}`, file, window)
}

// over waits until a batch is over.
func (r *rig) over(id string) *batchState {
	r.t.Helper()
	var s batchState
	settles(r.t, "the batch does not end", func() bool { r.ok(&s, "GET", "/v1/batches/"+id, ""); return s.hasEnded() })
	settles(r.t, "something is left", r.idle)
	return &s
}

// results reads a file of results by custom id.
func (r *rig) results(id *string) map[string]resultLine {
	r.t.Helper()
	out := map[string]resultLine{}
	if id == nil {
		return out
	}
	resp, text := r.do("GET", "/v1/files/"+*id+"/content", "")
	if resp.StatusCode != 200 {
		r.t.Fatalf("content: %d %s", resp.StatusCode, text)
	}
	for _, l := range strings.Split(strings.TrimSpace(text), "\n") {
		res := resultLine{Response: &resultResponse{Body: &completion{}}}
		if err := json.Unmarshal([]byte(l), &res); err != nil {
			r.t.Fatalf("%s: %v", l, err)
		}
		if _, twice := out[res.CustomID]; twice {
			r.t.Errorf("%s is there twice", res.CustomID)
		}
		out[res.CustomID] = res
	}
	return out
}

// answers holds the results of n lines against what they should be.
func (r *rig) answers(s *batchState, n, tokens int) {
	r.t.Helper()
	got := r.results(s.OutputFile)
	for i := range n {
		_, want := line(i, tokens)
		res, ok := got[fmt.Sprint("c", i)]
		if !ok || res.Error != nil || res.Response.Status != 200 || *res.Response.Body.(*completion).Choices[0].Text != want {
			r.t.Errorf("line %d: %+v, expected %q", i, res, want)
		}
	}
	if len(got) != n {
		r.t.Errorf("%d results of %d lines", len(got), n)
	}
}

func TestBatchAnswersEveryLine(t *testing.T) {
	const n = 300
	f := &fake{evict: 4}
	r := start(t, f, Options{})
	var in strings.Builder
	for i := range n {
		l, _ := line(i, 8)
		in.WriteString(l)
	}
	in.WriteString("\n \n") // empty lines do not count
	id := r.uploaded(in.String())
	var s batchState
	r.ok(&s, "POST", "/v1/batches", batchBody(id, "24h"))
	if s.Status != "validating" || s.Expires-s.Created != 86400 || s.Metadata["who"] != "test" || s.Owner != "" {
		t.Errorf("created: %+v", s)
	}
	done := r.over(s.ID)
	if done.Status != "completed" || done.RequestCounts != (batchCounts{n, n, 0}) || done.ErrorFile != nil || done.Completed == nil || done.InProgress == nil || done.Finalizing == nil {
		t.Errorf("done: %+v", done)
	}
	r.answers(done, n, 8)
	if q := f.served[0]; q.Class != "batch" || q.Deadline.Unix() != s.Expires {
		t.Errorf("class %q, deadline %v", q.Class, q.Deadline)
	}
	var l list
	r.ok(&l, "GET", "/v1/batches?limit=1", "")
	if len(l.Data) != 1 || l.HasMore || l.FirstID != s.ID {
		t.Errorf("list: %+v", l)
	}
	if r.ok(&l, "GET", "/v1/files", ""); len(l.Data) != 2 {
		t.Errorf("files: %+v", l)
	}
	if r.ok(&l, "GET", "/v1/files?purpose=batch", ""); len(l.Data) != 1 || l.FirstID != id {
		t.Errorf("files of a purpose: %+v", l)
	}
	if resp, text := r.do("POST", "/v1/batches/"+s.ID+"/cancel", ""); resp.StatusCode != 400 || !strings.Contains(text, "batch_over") {
		t.Errorf("cancelled when it was over: %d %s", resp.StatusCode, text)
	}
	if resp, _ := r.do("DELETE", "/v1/files/"+id, ""); resp.StatusCode != 200 {
		t.Errorf("delete: %d", resp.StatusCode)
	}
	if resp, _ := r.do("GET", "/v1/files/"+id, ""); resp.StatusCode != 404 {
		t.Errorf("what was deleted: %d", resp.StatusCode)
	}
}

// Lines that fail are in the error file.
func TestFailedLinesAreInErrorFile(t *testing.T) {
	f := &fake{end: func(r *Request) error {
		if strings.Contains(string(r.Body), "line 1") {
			return &ServerError{Status: 400, Code: "context_length_exceeded", Msg: "too long"}
		}
		return nil
	}}
	r := start(t, f, Options{})
	a, _ := line(0, 3)
	b, _ := line(1, 3)
	var s batchState
	r.ok(&s, "POST", "/v1/batches", batchBody(r.uploaded(a+b), "1h"))
	done := r.over(s.ID)
	if done.Status != "completed" || done.RequestCounts != (batchCounts{2, 1, 1}) {
		t.Errorf("done: %+v", done)
	}
	r.answers(done, 1, 3)
	if res := r.results(done.ErrorFile)["c1"]; res.Response.Status != 400 {
		t.Errorf("the error: %+v", res)
	}
}

func TestBadBatchInputsAreRefused(t *testing.T) {
	r := start(t, &fake{}, Options{MaxBatchLines: 3, MaxBodyBytes: 1 << 20, MaxFileBytes: 3 << 20, MaxStoredBytes: 4 << 20})
	good, _ := line(0, 3)
	for _, c := range []struct{ lines, code, message string }{
		{"\n", "empty_file", "no requests"},
		{good + "{", "invalid_argument", "not a JSON object"},
		{good + good, "invalid_argument", "was used before"},
		{strings.Replace(good, "POST", "GET", 1), "invalid_argument", "found GET"},
		{strings.Replace(good, "/v1/completions", "/v1/chat/completions", 1), "invalid_argument", "expected POST /v1/completions"},
		{strings.Replace(good, `"m"`, `"none"`, 1), "model_not_found", "not served here"},
		{strings.Replace(good, `"prompt"`, `"stream":true,"prompt"`, 1), "invalid_argument", "no streams"},
		{strings.Repeat("{}\n", 4), "too_many_lines", "at most 3"},
		{good + strings.Repeat("x", 2<<20), "too_large", "more than"},
	} {
		var s batchState
		id := r.uploaded(c.lines)
		r.ok(&s, "POST", "/v1/batches", batchBody(id, "1h"))
		done := r.over(s.ID)
		last := batchError{}
		if done.Errors != nil {
			last = done.Errors.Data[len(done.Errors.Data)-1]
		}
		if done.Status != "failed" || last.Code != c.code || !strings.Contains(last.Message, c.message) {
			t.Errorf("%.60q: %s %+v", c.lines, done.Status, last)
		}
		r.do("DELETE", "/v1/files/"+id, "")
	}
	id := r.uploaded(good)
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{batchBody("file-none", "1h"), 404, "no such file"},
		{batchBody("../x", "1h"), 404, "no such file"},
		{batchBody(id, "1y"), 400, `"param":"completion_window"`},
		{batchBody(id, "1ms"), 400, `"param":"completion_window"`},
		{strings.Replace(batchBody(id, "1h"), "/v1/completions", "/v1/embeddings", 1), 400, `"param":"endpoint"`},
		{strings.Replace(batchBody(id, "1h"), `"test"`, `7`, 1), 400, `"param":"metadata"`},
	} {
		if resp, text := r.do("POST", "/v1/batches", c.body); resp.StatusCode != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s", c.body, resp.StatusCode, text)
		}
	}
	if resp, text := r.upload("fine-tune", good); resp.StatusCode != 400 || !strings.Contains(text, `"param":"purpose"`) {
		t.Errorf("purpose: %d %s", resp.StatusCode, text)
	}
	if resp, text := r.upload("batch", strings.Repeat("x", 4<<20)); resp.StatusCode != 413 || !strings.Contains(text, "too_large") {
		t.Errorf("a large file: %d %s", resp.StatusCode, text)
	}
	r.uploaded(strings.Repeat("x", 2<<20))
	r.uploaded(strings.Repeat("x", 3<<20))
	if resp, text := r.upload("batch", good); resp.StatusCode != 413 || !strings.Contains(text, "delete some") {
		t.Errorf("too many bytes: %d %s", resp.StatusCode, text)
	}
	keys, err := r.store.Keys(t.Context(), chunkKeys)
	if err != nil || len(keys) != 1+4+6 {
		t.Errorf("%d pieces are stored, %v: what was refused is left", len(keys), err)
	}
	for _, path := range []string{"/v1/batches/none", "/v1/batches/..", "/v1/files/none/content", "/v1/batches?limit=x"} {
		if resp, _ := r.do("GET", path, ""); resp.StatusCode/100 != 4 {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

// A batch that is cancelled, or whose window ends, gives what it has.
func TestBatchEndsEarly(t *testing.T) {
	for _, c := range []struct{ window, status, code string }{{"1h", "cancelled", "batch_cancelled"}, {"1s", "expired", "batch_expired"}} {
		f := &fake{hold: make(chan struct{})}
		r := start(t, f, Options{})
		var in strings.Builder
		for i := range 10 {
			l, _ := line(i, 2)
			in.WriteString(l)
		}
		f.onServe = func(q *Request, out Output) bool {
			if !strings.Contains(string(q.Body), "line 3") {
				return false
			}
			text := fullText(q.Body, 2)
			out.Text(text, 2)
			out.Done(Result{Finish: "length"})
			return true
		}
		var s batchState
		r.ok(&s, "POST", "/v1/batches", batchBody(r.uploaded(in.String()), c.window))
		settles(t, "no line ends", func() bool { r.ok(&s, "GET", "/v1/batches/"+s.ID, ""); return s.RequestCounts.Completed == 1 })
		if c.status == "cancelled" {
			if r.ok(&s, "POST", "/v1/batches/"+s.ID+"/cancel", ""); s.Status != "cancelling" {
				t.Errorf("cancelled: %+v", s)
			}
		}
		done := r.over(s.ID)
		if done.Status != c.status || done.RequestCounts != (batchCounts{10, 1, 9}) {
			t.Errorf("%s: %+v", c.status, done)
		}
		if got := r.results(done.OutputFile); len(got) != 1 || got["c3"].Response == nil {
			t.Errorf("%s: output %+v", c.status, got)
		}
		bad := r.results(done.ErrorFile)
		if len(bad) != 9 || bad["c0"].Error == nil || bad["c0"].Error.Code != c.code {
			t.Errorf("%s: errors %+v", c.status, bad["c0"])
		}
		slices.Sort(f.forgot)
		if stopped := slices.Compact(f.forgot); len(stopped) != 9 || slices.Contains(stopped, lineID(s.ID, 3)) {
			t.Errorf("%s: these requests were stopped: %v", c.status, stopped)
		}
	}
}

// A batch has its whole window, whatever part of a second it comes in.
func TestBatchHasItsWindow(t *testing.T) {
	for _, at := range []time.Duration{0, 1, 500 * time.Millisecond, time.Second - 1} {
		now := time.Unix(100, 0).Add(at)
		s := batchState{Expires: now.Add(time.Second).Unix()}
		if has := s.deadline().Sub(now); has < time.Second || has >= 2*time.Second {
			t.Errorf("%v after a whole second: the window of 1s is %v", at, has)
		}
	}
}

// A batch goes on after restarts, and every line is answered once.
func TestBatchContinuesAfterRestart(t *testing.T) {
	const n = 100
	f := &fake{every: time.Millisecond}
	r := start(t, f, Options{TextStoreInterval: 5 * time.Millisecond})
	var in strings.Builder
	for i := range n {
		l, _ := line(i, 60)
		in.WriteString(l)
	}
	var s batchState
	r.ok(&s, "POST", "/v1/batches", batchBody(r.uploaded(in.String()), "1h"))
	for range 4 {
		settles(t, "no request has begun", func() bool {
			r.ok(&s, "GET", "/v1/batches/"+s.ID, "")
			return s.RequestCounts.Completed == n || slices.ContainsFunc(r.front.requests.served(), func(e *trackedRequest) bool { return e.snapshot(0).tokens > 0 })
		})
		r.down()
		r.up(Options{})
	}
	done := r.over(s.ID)
	if done.Status != "completed" || done.RequestCounts != (batchCounts{n, n, 0}) {
		t.Errorf("done: %+v", done)
	}
	r.answers(done, n, 60)
	if f.partials == 0 {
		t.Error("no request went on with text: the test does not test")
	}
}

// While there is no room a batch waits; others are refused.
func TestBatchWaitsForRoom(t *testing.T) {
	f := &fake{}
	refuse := 3
	f.admit = func(*Request) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if refuse--; refuse >= 0 {
			return &Refusal{Reason: "overload", Msg: "full", RetryAfter: time.Millisecond}
		}
		return nil
	}
	r := start(t, f, Options{})
	a, _ := line(0, 3)
	b, _ := line(1, 3)
	var s batchState
	r.ok(&s, "POST", "/v1/batches", batchBody(r.uploaded(a+b), "1h"))
	done := r.over(s.ID)
	if done.RequestCounts != (batchCounts{2, 2, 0}) || refuse >= 0 {
		t.Errorf("done: %+v", done)
	}
	r.answers(done, 2, 3)
}

// What is too old is deleted, and uploads that never ended.
func TestOldFilesAreDeleted(t *testing.T) {
	r := start(t, &fake{}, Options{FileRetention: 2 * time.Hour})
	r.uploaded("x\n")
	fs := r.front.files
	half, err := fs.createFile(t.Context(), "", "half", "batch")
	if err == nil {
		_, err = half.Write(make([]byte, 600<<10))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after time.Duration
		left  int
	}{{time.Minute, 2}, {90 * time.Minute, 1}, {3 * time.Hour, 0}} {
		if err := fs.expireFiles(t.Context(), time.Now().Add(c.after)); err != nil {
			t.Error(err)
		}
		metas, err1 := r.store.Keys(context.Background(), fileKeys)
		pieces, err2 := r.store.Keys(context.Background(), chunkKeys)
		if err1 != nil || err2 != nil || len(metas) != c.left || len(pieces) != c.left {
			t.Errorf("after %v: %v %v", c.after, metas, pieces)
		}
	}
}

// An upload that breaks off leaves nothing.
func TestUploadBreaksOff(t *testing.T) {
	r := start(t, &fake{}, Options{})
	body := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n" + strings.Repeat("x", 1<<20)
	req := r.request("POST", "/v1/files", body, "Content-Type", "multipart/form-data; boundary=b")
	w := httptest.NewRecorder()
	r.front.ServeHTTP(w, req)
	if w.Code != 400 || !strings.Contains(w.Body.String(), "cut off") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	keys, err := r.store.Keys(t.Context(), "")
	if err != nil || len(keys) != 0 {
		t.Errorf("left: %v, %v", keys, err)
	}
}
