package inferplan_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// functionWords are pronouns, prepositions, adverbs, adjectives and participles. None of them says what a type, a
// field, a function or a package-level variable is: the name must have the noun, too.
var functionWords = strings.Fields(`
about above across after again ahead alike all along alone also anew any apart around as aside asked at away
been before behind below beside besides best better both brought built by came counted down drawn each either else
enough ever every fair few fewest fine for found from full further gave given gone good got had has have held her here
his how in inside into is it its kept known laid last late later least left less like likely lone long low made many
mine more most moved much must near needed never none nor not now of off often on once only onto or ought our out
outer over own paid past per picked plain put quite ran rather ready said same seen sent shown since so some soon
spent staying still such taken than that the their them then there these they this those through thus to together
told too took toward under until up upon very wanted was well went were what when where whether which while who whole
whom whose why will with within without worse worst yet`)

// allowedNames are those of functionWords that Go's usage gives (Less of a heap, Now of a clock), or the field (Late).
var allowedNames = strings.Fields("Less less Is Has In Out in out All all has from to From To last Last best Best left Left Now now At at Late late Up up Down down Put put Good Low Found Ready ready")

// speechlessComments are ways to begin a comment that leave out its noun or its verb.
var speechlessComments = regexp.MustCompile(`(?m)^// (\S+ )?((is|are) (what|where|which|why) |(nil|true|false|-1): )`)

// findWeakNames lists the declarations of a file whose whole name is a function word, and the comments of declarations
// that are no sentence.
func findWeakNames(path string, file *ast.File) []string {
	if ast.IsGenerated(file) {
		return nil
	}
	var findings []string
	check := func(kind string, names ...*ast.Ident) {
		for _, name := range names {
			if slices.Contains(functionWords, strings.ToLower(name.Name)) && !slices.Contains(allowedNames, name.Name) {
				findings = append(findings, fmt.Sprintf("%s: %s %s: say which thing it is, or what it does", path, kind, name.Name))
			}
		}
	}
	comment := func(text *ast.CommentGroup) {
		if text == nil {
			return
		}
		for _, line := range text.List[:1] {
			if match := speechlessComments.FindString(line.Text); match != "" {
				findings = append(findings, fmt.Sprintf("%s: comment %q: write \"returns X. If Y, it returns Z\"", path, match))
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			check("function", n.Name)
			comment(n.Doc)
			return false // names inside of functions are the reviewer's
		case *ast.TypeSpec:
			check("type", n.Name)
			comment(n.Doc)
		case *ast.ValueSpec:
			check("variable", n.Names...)
			comment(n.Doc)
		case *ast.StructType:
			for _, field := range n.Fields.List {
				check("field", field.Names...)
			}
		case *ast.InterfaceType:
			for _, method := range n.Methods.List {
				check("method", method.Names...)
			}
		case *ast.GenDecl:
			comment(n.Doc)
		}
		return true
	})
	return findings
}

// TestNamesSayWhatTheyHold reads the product's Go files, without tests and instruments.
func TestNamesSayWhatTheyHold(t *testing.T) {
	files, err := sources(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.path, "bench/") || strings.HasPrefix(f.path, "testkit/") || strings.HasPrefix(f.path, "third_party/") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), f.path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range findWeakNames(f.path, tree) {
			t.Error(finding)
		}
	}
}

func TestWeakNamesAreFound(t *testing.T) {
	for code, want := range map[string]int{
		"type device struct{ freeMemory int }":                         0,
		"type kept struct{ own int }":                                  2,
		"func (p *plan) took() {}":                                     1,
		"// pick is what is chosen.\nfunc pick() {}":                   1,
		"// pick returns the cheapest plan.\nfunc pick() { own := 1 }": 0,
		"type judge interface{ enough() bool }":                        1,
	} {
		tree, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\n"+code, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if got := findWeakNames("a.go", tree); len(got) != want {
			t.Errorf("%q: %q, want %d", code, got, want)
		}
	}
}
