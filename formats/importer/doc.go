// Package importer is the home of readers of other tools' files that several parts of the project use, a
// sub-package each. They parse only: what comes out is a document of package
// formats, validated like any other, and every error names file and line. The importers themselves are in importers.
package importer
