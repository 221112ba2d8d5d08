"use strict";
const pageErrors = [];
