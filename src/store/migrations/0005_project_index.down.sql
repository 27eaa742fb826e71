DROP INDEX "sessions_of_project";
