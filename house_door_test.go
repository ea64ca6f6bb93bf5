package inferplan_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// Everything that the executor serves stands behind one door (executor/httplimit): only it
// makes HTTP servers and reads bodies, and a handler is registered through it.
const door = "executor/httplimit"

// guarded are files that register handlers in a mux which stands behind the door as a whole.
var guarded = []string{"executor/serve.go", "executor/live/pages.go", "executor/text/queuestate.go", "executor/text/queuemonitor.go", "executor/text/agentrefused.go"}

// past says what of a file goes past the door.
func past(file string, tree *ast.File) (out []string) {
	web := slices.ContainsFunc(tree.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"net/http"` })
	ast.Inspect(tree, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.CompositeLit:
			if selected(x.Type) == "http.Server" {
				out = append(out, "makes an http.Server, expected Door.Server")
			}
		case *ast.SelectorExpr:
			switch selected(x) {
			case "http.MaxBytesReader", "http.ListenAndServe", "http.Serve":
				out = append(out, selected(x)+", expected what "+door+" has")
			case "r.Body":
				if !web {
					return true
				}
				out = append(out, "reads a body, expected Door.ReadBody")
			}
		case *ast.CallExpr:
			f, ok := x.Fun.(*ast.SelectorExpr)
			if !ok || !web || !slices.Contains([]string{"Handle", "HandleFunc"}, f.Sel.Name) || len(x.Args) != 2 || slices.Contains(guarded, file) {
				return true
			}
			call, ok := x.Args[1].(*ast.CallExpr)
			if by, sel := (*ast.SelectorExpr)(nil), false; ok {
				if by, sel = call.Fun.(*ast.SelectorExpr); sel && slices.Contains([]string{"Handler", "Probe"}, by.Sel.Name) {
					return true
				}
			}
			out = append(out, "registers a handler, expected it through Door.Handler or Door.Probe")
		}
		return true
	})
	return out
}

// selected is the text of a selector such as http.Server.
func selected(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := s.X.(*ast.Ident); ok {
		return x.Name + "." + s.Sel.Name
	}
	return ""
}

func TestNothingGoesPastTheDoor(t *testing.T) {
	files, err := sources(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !within(path.Dir(f.path), "executor") || within(path.Dir(f.path), door) || within(path.Dir(f.path), "executor/load") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), f.path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range past(f.path, tree) {
			t.Errorf("%s: %s", f.path, v)
		}
	}
	code := `package x
		import "net/http"
		func f() { s := http.Server{}; http.MaxBytesReader(w, r.Body, 1); mux.HandleFunc("/", g); mux.HandleFunc("/", door.Handler(refuse, g)) }`
	tree, err := parser.ParseFile(token.NewFileSet(), "executor/x.go", code, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := past("executor/x.go", tree); len(got) != 4 {
		t.Errorf("found %s, expected four", strings.Join(got, "; "))
	}
}
