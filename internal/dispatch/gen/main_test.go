package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	for name, render := range files {
		want, err := render()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := os.ReadFile(filepath.Join("../../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s does not follow from the table: run go generate ./internal/dispatch", name)
		}
	}
}

func TestPageIsUpToDate(t *testing.T) {
	t.Parallel()
	got, err := os.ReadFile(filepath.Join("../../..", docName))
	if err != nil {
		t.Fatal(err)
	}
	want, err := doc(got)
	if err != nil {
		t.Fatalf("%s: %v", docName, err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s does not follow from the table: run go generate ./internal/dispatch", docName)
	}
}
